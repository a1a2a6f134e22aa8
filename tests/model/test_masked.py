"""Masked sums: a collector sees the total only, and the total is that of a plain merge."""

import hashlib
import json
import sys
from dataclasses import replace

import msgspec
import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from privacy_attack import Descent, Seen
from scipy.stats import chisquare

from tests.refusals import refused
from visvm.errors import IncompatibleModelError, MemoryLimitError, ModelFileError
from visvm.head.head import Head
from visvm.head.settle import HeadOptions, settle
from visvm.head.statistics import Statistics
from visvm.model import changes, masked, masks, merging, rounds
from visvm.model.sites import SiteStatistics
from visvm.model.state import EncoderId, Model

WIDTH = 20
NAMES = ("north", "south", "west")
CLASSES = ("gull", "heron", "kite", "owl")


def photos(n, seed, d=6):
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, 3, n)
    return generator.normal(size=(n, d)) + np.eye(6)[labels, :d] * 3, np.array(CLASSES)[labels]


@pytest.fixture(scope="module")
def base():
    """A collector's model."""
    X, y = photos(40, 0)
    options = HeadOptions(layer_dims=(6,), n_components=WIDTH, ridge=1.0)
    head = Head.blank(settle(X, y, options)).learned(X, y).solved()
    return Model(EncoderId("tiny", "0" * 64, "squash"), head)


def site_of(base, number, X, y):
    """The sums of a site, as ``learn_statistics`` makes them."""
    blank = changes.for_site(base, f"{number:016x}")
    return SiteStatistics(replace(blank, head=blank.head.learned(X, y), learned=("photos",)))


@pytest.fixture
def sites(base):
    """Sums of three sites: one of a photo of a class of its own, and others of many."""
    return [
        site_of(base, 1, photos(1, 1)[0], np.array(["owl"])),
        *(site_of(base, number, *photos(30, number)) for number in (2, 3)),
    ]


def round_of(base, sites):
    """Keys of sites, and their roster."""
    keys = [rounds.join(site.model, f"site {number}", CLASSES) for number, site in enumerate(sites)]
    return keys, rounds.make_roster(base, [key.card for key in keys], 10**6)


def files_of(folder, keys, roster, sites, dropped=()):
    """The files that the collector gets."""
    files = []
    for number, (key, site) in enumerate(zip(keys, sites, strict=True)):
        if number in dropped:
            continue
        masked.mask(key, roster, site).save(folder / f"{number}.masked")
        files.append(folder / f"{number}.masked")
        if dropped:
            gone = [keys[each].card.site for each in dropped]
            rounds.write_note(folder / f"{number}.reveal", masked.reveal(key, roster, gone)[1])
            files.append(folder / f"{number}.reveal")
    return files


def assert_merged(base, total, sites):
    """The total must be the sums of all of them, in every sum and score."""
    plain = merging.merged(base, sites).head
    got = merging.merged(base, [total]).head
    assert got.classes.tolist() == plain.classes.tolist()
    assert got.statistics.class_counts.tolist() == plain.statistics.class_counts.tolist()
    size = np.abs(plain.statistics.gram).max()
    np.testing.assert_allclose(
        got.statistics.gram, plain.statistics.gram, rtol=0, atol=1e-10 * size
    )
    X, _ = photos(20, 99)
    np.testing.assert_allclose(got.scores(X), plain.scores(X), rtol=0, atol=1e-9)


@pytest.mark.parametrize("dropped", [(), (0,), (2,)])
def test_the_total_is_that_of_a_plain_merge(base, sites, dropped, tmp_path):
    keys, roster = round_of(base, sites)
    files = files_of(tmp_path, keys, roster, sites, dropped)
    total = masked.total(base, roster, files)
    assert_merged(base, total, [each for n, each in enumerate(sites) if n not in dropped])


def test_a_total_that_names_no_sites_is_not_merged(base, sites, tmp_path):
    """As an older version wrote it: it could be added a second time, beside its sites."""
    keys, roster = round_of(base, sites)
    total = masked.total(base, roster, files_of(tmp_path, keys, roster, sites))
    older = SiteStatistics(replace(total.model, sites=()))
    with refused("merge-nameless", IncompatibleModelError):
        merging.merged(base, [older])
    assert merging.merged(base, [total]).site is None


@pytest.mark.parametrize(
    "label", ["\x1b[2J", "a\u202eb", "", "\u200b", " red", "e\u0301", 2**63, -(2**63)]
)
def test_classes_that_no_model_has_are_refused_in_notes(base, sites, tmp_path, label):
    card = rounds.join(sites[0].model, "north", CLASSES).card
    rounds.write_note(tmp_path / "a.card", msgspec.structs.replace(card, classes=[label]))
    with refused("masked-note", ModelFileError):
        rounds.read_note(tmp_path / "a.card", rounds.Card)


def test_a_roster_asks_for_no_more_memory_than_there_is(base, sites, tmp_path, monkeypatch):
    keys, roster = round_of(base, sites)
    monkeypatch.setattr(masked, "available_bytes", lambda: 1000)
    with refused("memory-limit", MemoryLimitError):
        masked.mask(keys[0], roster, sites[0])
    many = [f"class {number}" for number in range(10**5)]
    large = msgspec.structs.replace(roster, classes=many)
    monkeypatch.setattr(masked.np, "zeros", lambda *_, **__: pytest.fail("memory was taken"))
    MaskedSums = masked.MaskedSums
    MaskedSums(large.id, keys[0].card.site, {}, np.arange(9, dtype=np.uint64)).save(tmp_path / "x")
    with refused("file-altered", ModelFileError):
        masked.total(base, large, [tmp_path / "x"])


def test_the_total_is_merged_once_and_taken_out_again(base, sites, tmp_path):
    keys, roster = round_of(base, sites)
    masked.total(base, roster, files_of(tmp_path, keys, roster, sites)).save(
        tmp_path / "total.sums", reveal_features=True
    )
    total = SiteStatistics.load(tmp_path / "total.sums")
    merged = merging.merged(base, [total])
    with refused("site-merged-twice"):
        merging.merged(merged, [total])
    back = merging.unmerged(merged, total)
    X, _ = photos(20, 99)
    np.testing.assert_allclose(back.scores(X), base.scores(X), rtol=0, atol=1e-8)


def test_rounds_and_plain_sums_of_one_site_are_not_added_twice(base, sites, tmp_path):
    totals = {}
    for n in (2, 3):
        keys, roster = round_of(base, sites[:n])
        (folder := tmp_path / str(n)).mkdir()
        totals[n] = masked.total(base, roster, files_of(folder, keys, roster, sites[:n]))
        totals[n].save(folder / "total.sums", reveal_features=True)
        totals[n] = SiteStatistics.load(folder / "total.sums")
    for first, then in (
        (sites[0], totals[2]),
        (totals[2], sites[0]),
        (totals[2], totals[3]),
        (totals[3], totals[2]),
    ):
        with refused("site-merged-twice"):
            merging.merged(base, [first, then])
        held = merging.merged(base, [first])
        with refused("site-merged-twice"):
            merging.merged(held, [then])
    both = merging.merged(base, [totals[2], sites[2]])
    assert sum(both.counts.values()) == sum(merging.merged(base, sites).counts.values())
    with refused("site-altered"):
        merging.unmerged(both, sites[0])
    renamed = changes.renamed(both, "owl", "barn owl", merge=False)
    left = merging.unmerged(renamed, totals[2])
    assert [each.id for each in left.sites] == [sites[2].site]


def test_a_site_that_dropped_out_is_not_in_the_total(base, sites, tmp_path):
    keys, roster = round_of(base, sites)
    total = masked.total(base, roster, files_of(tmp_path, keys, roster, sites, (2,)))
    held = merging.merged(base, [total])
    n = sum(held.counts.values())
    assert sum(merging.merged(held, [sites[2]]).counts.values()) == n + sites[2].n_images


def test_sums_that_hold_other_sites_are_not_masked(base, sites):
    keys, roster = round_of(base, sites)
    more = merging.merged(sites[1].model, [sites[2]])
    with refused("masked-holds-sites"):
        masked.mask(keys[1], roster, SiteStatistics(more))


# What a collector sees of one site


def test_masked_sums_look_uniform(base, sites):
    keys, roster = round_of(base, sites)
    plain = masks.as_words(
        sites[1].model.head.statistics, np.array(roster.classes), roster.scale, len(sites)
    )
    pairs = list(zip(keys, sites, strict=True))[:2]  # all three add up to what is not uniform
    words = np.concatenate([masked.mask(key, roster, site).words for key, site in pairs])
    octets = np.bincount(words.view(np.uint8), minlength=256)
    assert chisquare(octets).pvalue > 1e-4
    bits = np.unpackbits(words.view(np.uint8)).reshape(len(words), 64).sum(axis=0)
    assert chisquare(bits).pvalue > 1e-4
    assert chisquare(np.bincount(plain.view(np.uint8), minlength=256)).pvalue < 1e-100
    assert abs(np.corrcoef(words[: len(plain)].astype(float), plain.view(np.int64))[0, 1]) < 0.3


def test_every_round_has_masks_of_its_own(base, sites):
    (keys, roster), (_, other) = round_of(base, sites), round_of(base, sites)
    first = masked.mask(keys[0], roster, sites[0]).words
    more = rounds.make_roster(base, [key.card for key in keys], 10**5)
    second = masked.mask(keys[0], more, sites[0]).words
    plain = [
        masks.as_words(sites[0].model.head.statistics, np.array(each.classes), each.scale, 3)
        for each in (roster, more)
    ]
    assert not (first - plain[0] == second - plain[1]).any()
    with refused("masked-not-in-roster"):
        masked.mask(keys[0], other, sites[0])


def test_the_attack_finds_photos_in_plain_sums_and_none_in_masked_ones(base):
    options = HeadOptions(layer_dims=(6,), n_components=150, ridge=1.0)
    X, y = photos(6, 1)
    wide = replace(base, head=Head.blank(settle(X, y, options)).learned(X, y).solved())
    sites = [site_of(wide, number, *photos(6, number)) for number in (1, 2)]
    keys, roster = round_of(wide, sites)
    sums, classes = sites[0].model.head.statistics, np.array(roster.classes)
    fused = wide.head.settled.lift.mixer.fuse(photos(6, 1)[0])
    matrix = wide.head.settled.lift.kernel_map.matrix
    words = masks.as_words(sums, classes, roster.scale, 2)
    plain = masks.as_statistics(words, classes, 150, roster.scale)
    found = Descent(Seen.of(plain), matrix).run(budget=5)
    assert len(found.features) == 6  # near enough to be a photo
    hidden = masked.mask(keys[0], roster, sites[0]).words
    assert masks.as_statistics(hidden, classes, 150, roster.scale) is None
    hidden[: 151 * 4] = words[: 151 * 4]  # even if class sums and numbers were known
    seen = Seen.of(masks.as_statistics(hidden, classes, 150, roster.scale))
    assert Descent(seen, matrix).run(budget=1).n_right(fused) == 0


def test_a_file_says_nothing_but_the_round(base, sites, tmp_path):
    keys, roster = round_of(base, sites)
    masked.mask(keys[0], roster, sites[0]).save(tmp_path / "a")
    content = (tmp_path / "a").read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(json.loads(content[8 : 8 + length])["__metadata__"]["visvm"])
    assert set(header) == {"format", "kind", "round", "site", "checks", "tensors"}
    sizes = {
        masked.mask(*pair).words.nbytes for pair in zip(keys, [roster] * 3, sites, strict=True)
    }
    assert sizes == {8 * ((WIDTH + 1) * len(CLASSES) + WIDTH * (WIDTH + 1) // 2)}


# The derivation of masks, by the package cryptography alone

SAID_SEED, SAID_CHECK = b"visvm masked sums, seed", b"visvm masked sums, check"
# of private keys aa… and bb… in the round rr…
A_SEED = "704ee9a53ce932f7e3a8c495f80aaa227bd48fd43454a23940833e0f310562ea"
A_CHECK = "8d9400ffa13b5f3cb0d8f1e8e009b6dc23df79fa27cc1578df733488db5d5707"


def derived(secret, salt, info):
    return HKDF(SHA256(), 32, salt, info).derive(secret)


def shared(private, public):
    key = X25519PrivateKey.from_private_bytes(private)
    return key.exchange(X25519PublicKey.from_public_bytes(public))


def stream(seed, n_words):
    encryptor = Cipher(ChaCha20(seed, bytes(16)), None).encryptor()
    return np.frombuffer(encryptor.update(bytes(8 * n_words)), dtype="<u8")


def test_seeds_and_checks_are_those_of_known_answers():
    a, b = b"a" * 32, b"b" * 32
    publics = [
        X25519PrivateKey.from_private_bytes(each).public_key().public_bytes_raw() for each in (a, b)
    ]
    assert [masks.public_of(each) for each in (a, b)] == publics
    info = SAID_SEED + b"".join(sorted(publics))
    seed = derived(shared(a, publics[1]), b"r" * 32, info)
    assert masks.pair_seed(a, publics[1], b"r" * 32) == seed
    assert masks.pair_seed(b, publics[0], b"r" * 32) == seed
    assert masks.seed_check(seed) == derived(seed, b"", SAID_CHECK).hex()
    assert (seed.hex(), masks.seed_check(seed)) == (A_SEED, A_CHECK)
    words = np.arange(9, dtype=np.uint64)
    masks.add_mask(words, seed)
    assert (words - stream(seed, 9)).tolist() == list(range(9))


def test_masked_words_are_sums_and_streams_of_secrets(base, sites):
    keys, roster = round_of(base, sites)
    round_id = hashlib.sha256(msgspec.json.encode(roster)).digest()
    for key, site in zip(keys, sites, strict=True):
        given = masked.mask(key, roster, site)
        wanted = masks.as_words(
            site.model.head.statistics, np.array(roster.classes), roster.scale, len(sites)
        )
        private, own = bytes.fromhex(key.private), bytes.fromhex(key.card.public)
        for card in roster.cards:
            if card.site == key.card.site:
                continue
            public = bytes.fromhex(card.public)
            info = SAID_SEED + b"".join(sorted((own, public)))
            seed = derived(shared(private, public), round_id, info)
            mask = stream(seed, len(wanted))
            wanted = wanted + mask if key.card.site < card.site else wanted - mask
            assert given.checks[card.site] == derived(seed, b"", SAID_CHECK).hex()
        assert given.words.tolist() == wanted.tolist()


def test_no_mask_can_be_computed_from_header_and_roster_alone(base, sites):
    keys, roster = round_of(base, sites[:2])  # one mask only
    given = masked.mask(keys[0], roster, sites[0])
    plain = masks.as_words(
        sites[0].model.head.statistics, np.array(roster.classes), roster.scale, 2
    )
    mask = (given.words - plain)[:8].tolist()
    publics = [bytes.fromhex(card.public) for card in roster.cards]
    round_id, checks = (
        bytes.fromhex(roster.id),
        [bytes.fromhex(each) for each in given.checks.values()],
    )
    sorted_ends = b"".join(sorted(publics))
    known = [round_id, *publics, *checks, sorted_ends, publics[0] + publics[1], bytes(32), b""]
    known += [bytes.fromhex(roster.model.lift), bytes.fromhex(roster.model.encoder)]
    known += [shared(one, other) for one in known for other in publics if len(one) == 32]
    infos = (SAID_SEED + sorted_ends, SAID_SEED, SAID_CHECK, b"")
    seeds = [each for each in known if len(each) == 32]
    seeds += [
        derived(each, salt, info) for each in known for salt in (round_id, b"") for info in infos
    ]
    for seed in seeds:
        assert stream(seed, 8).tolist() != mask
        assert (-stream(seed, 8)).tolist() != mask
    private, other = bytes.fromhex(keys[0].private), bytes.fromhex(keys[1].card.public)
    right = stream(derived(shared(private, other), round_id, infos[0]), 8)
    assert mask == right.tolist()  # one who has a key finds it in the same way


def test_people_compare_the_whole_id(base, sites):
    roster = round_of(base, sites)[1]
    assert roster.fingerprint.replace(" ", "") == roster.id


# What sites and collector are refused


def test_a_site_masks_one_thing_in_a_round(base, sites):
    keys, roster = round_of(base, sites)
    key = masked.masked_once(keys[1], roster, sites[1])
    assert masked.masked_once(key, roster, sites[1]) == key
    others = site_of(base, 2, *photos(5, 50))
    with refused("masked-twice"):
        masked.masked_once(key, roster, others)
    with refused("masked-other-site"):
        masked.mask(key, roster, sites[2])
    unknown = site_of(base, 2, photos(2, 1)[0], np.array(["zebra", "owl"]))
    with refused("masked-class-unknown"):
        masked.mask(key, roster, unknown)


def test_a_site_reveals_once_and_never_the_last_one(base, sites):
    keys, roster = round_of(base, sites)
    ids = [key.card.site for key in keys]
    key, _ = masked.reveal(keys[0], roster, ids[1:2])
    assert masked.reveal(key, roster, ids[1:2])[0] == key
    for gone, code in (
        (ids[2:], "masked-revealed-twice"),
        (ids[1:], "masked-alone"),
        (ids[:1], "masked-reveal-self"),
        ([], "masked-reveal-self"),
    ):
        with refused(code):
            masked.reveal(key, roster, gone)
    assert roster.sites_named(["site 1"]) == ids[1:2]
    with refused("masked-site-unknown"):
        roster.sites_named(["nobody"])


def test_wrong_or_missing_files_are_named(base, sites, tmp_path):
    keys, roster = round_of(base, sites)
    files = files_of(tmp_path, keys, roster, sites)
    (tmp_path / "other").mkdir()
    elsewhere = files_of(tmp_path / "other", *round_of(base, sites), sites)
    (tmp_path / "gone").mkdir()
    partly = files_of(tmp_path / "gone", keys, roster, sites, (2,))
    sites[0].save(tmp_path / "plain.sums", reveal_features=True)
    for given, code in (
        (files[:2], "masked-missing"),
        ([*files, files[0]], "masked-site-twice"),
        ([*files[:2], elsewhere[2]], "masked-other-round"),
        (partly[:3], "masked-missing"),  # one of the two others has revealed
        ([*files, partly[1]], "masked-reveal-other"),
        ([*partly, partly[1]], "masked-site-twice"),
        ([*files[:2], tmp_path / "plain.sums"], "masked-file"),
        ([*files[:2], tmp_path / "nothing"], "file-missing"),
    ):
        with refused(code):
            masked.total(base, roster, given)
    with refused("file-is-masked"):
        SiteStatistics.load(files[0])
    blank = replace(base, encoder=replace(base.encoder, digest="1" * 64))
    with refused("masked-other-model"):
        masked.total(blank, roster, files)


def test_altered_files_are_found(base, sites, tmp_path):
    keys, roster = round_of(base, sites)
    files = files_of(tmp_path, keys, roster, sites)
    given = masked.mask(keys[0], roster, sites[0])
    own = given.words.copy()
    own += np.uint64(1)
    replace(given, words=own).save(files[0])
    with refused("masked-left"):
        masked.total(base, roster, files)
    replace(given, words=own[1:]).save(files[0])
    with refused("file-altered"):
        masked.total(base, roster, files)
    replace(given, checks=dict.fromkeys(given.checks, "0" * 64)).save(files[0])
    with refused("masked-pair"):
        masked.total(base, roster, files)
    content = bytearray(files[1].read_bytes())
    content[-1] ^= 1
    files[1].write_bytes(content)
    with refused("file-altered"):
        masked.MaskedSums.load(files[1])
    (tmp_path / "r").mkdir()
    partly = files_of(tmp_path / "r", keys, roster, sites, (2,))
    told = rounds.read_note(partly[1], rounds.Reveal)
    wrong = dict.fromkeys(told.seeds, "0" * 64)
    rounds.write_note(partly[1], msgspec.structs.replace(told, seeds=wrong))
    with refused("masked-pair"):
        masked.total(base, roster, partly)


def test_notes_are_checked(base, sites, tmp_path):
    keys, roster = round_of(base, sites)
    path = tmp_path / "note"
    rounds.write_note(path, keys[0])
    assert path.stat().st_mode & 0o077 == 0
    assert rounds.read_note(path, rounds.Key) == keys[0]
    cards = roster.cards
    bad = [b"", b"{", b"[]", b'{"visvm": "masked-card"}', msgspec.json.encode(cards[0])]
    for change in (
        {"cards": cards[:1]},
        {"cards": [cards[0], *cards]},
        {"cards": [cards[0], msgspec.structs.replace(cards[1], public=cards[0].public)]},
        {"classes": ["owl", "gull"]},
        {"classes": ["owl", 3]},
        {"classes": []},
        {"scale": masks.Scale(9999, 38)},
        {"scale": masks.Scale(0, 64)},
    ):
        bad.append(msgspec.json.encode(msgspec.structs.replace(roster, **change)))
    for content in bad:
        path.write_bytes(content)
        with refused("masked-note"):
            rounds.read_note(path, rounds.Roster)
    with refused("file-missing"):
        rounds.read_note(tmp_path / "none", rounds.Card)


def test_cards_that_make_no_roster(base, sites):
    keys, _ = round_of(base, sites)
    cards = [key.card for key in keys]
    other = msgspec.structs.replace(cards[1], model=rounds.ModelId("1" * 64, "pad", "one", "x"))
    number = msgspec.structs.replace(cards[1], classes=[3])
    for given, most, code in (
        (cards[:1], 10, "masked-cards"),
        ([cards[0], cards[0]], 10, "masked-cards"),
        ([cards[0], number], 10, "masked-cards"),
        ([cards[0], other], 10, "masked-other-model"),
        (cards, 0, "masked-most-images"),
    ):
        with refused(code):
            rounds.make_roster(base, given, most)
    for site, classes, code in (
        (base, ["owl"], "masked-no-site"),
        (sites[0].model, [], "masked-no-class"),
        (sites[0].model, [" "], "label-empty"),
    ):
        with refused(code):
            rounds.join(site, "north", classes)
    weak = msgspec.structs.replace(cards[1], public="0" * 64)
    roster = rounds.make_roster(base, [cards[0], weak], 10)
    with refused("masked-weak-key"):
        masked.mask(keys[0], roster, sites[0])


# Numbers


def test_more_photos_than_fit_are_refused(base, sites):
    keys = round_of(base, sites)[0]
    roster = rounds.make_roster(base, [key.card for key in keys], 1)
    big = site_of(base, 2, photos(30, 2)[0] * 100, photos(30, 2)[1])
    with refused("masked-overflow"):
        masked.mask(keys[1], roster, big)


def test_numbers_of_photos_are_whole(base, sites):
    keys, roster = round_of(base, sites)
    sums = site_of(base, 2, *photos(30, 2))
    sums.model.head.statistics.class_sums[-1, 0] += 0.25
    with refused("masked-fraction"):
        masked.mask(keys[1], roster, sums)


@pytest.mark.parametrize("size", [1e-140, 1e-20, 1.0, 1e20])
def test_the_unit_is_that_of_the_features(size):
    X, y = photos(30, 5)
    lifted = np.maximum(X, 0.0) * size
    sums, classes = Statistics(6), np.unique(y)
    sums.add(lifted.copy(), y)
    scale = masks.Scale.of(masks.largest_mean_square(sums), 10**6)
    words = masks.as_words(sums, classes, scale, 10)
    back = masks.as_statistics(words, classes, 6, scale)
    for got, wanted in (
        (back.gram, sums.gram),
        (back.scatter.to_matrix(), sums.scatter.to_matrix()),
        (back.class_sums, sums.class_sums),
        (
            back.scatter.cross,
            sums.scatter.cross if sums.scatter.n_rows == 0 else back.scatter.cross,
        ),
    ):
        np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-10 * np.abs(wanted).max())


def test_no_package_is_one_line(monkeypatch, base, sites):
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with refused("extra-missing"):
        rounds.join(sites[0].model, "north", ["owl"])
