//! Writing a `tokenizer.json` that `tokenizers` and `transformers` load as it is.
//!
//! Special tokens are both added tokens and entries of the vocabulary. `tokenizers` takes the id of
//! an added token from the vocabulary; if it is missing there, it ignores the id in the file and
//! continues from the size of the vocabulary, which is another id if the ids have gaps.

use serde::{Serialize, Serializer};

use super::stages::dialect_difference;
use crate::base::error::{Error, Result};
use crate::text::pattern;
use crate::tokenizer::formats::spelling::{Spelled, listed};
use crate::tokenizer::spec::{Spec, shown};

#[derive(Serialize)]
struct JsonFile<'a> {
    version: &'static str,
    truncation: (),
    padding: (),
    added_tokens: Vec<JsonAddedToken<'a>>,
    normalizer: (),
    pre_tokenizer: JsonStage<'a>,
    post_processor: JsonStage<'a>,
    decoder: JsonStage<'a>,
    model: JsonModel<'a>,
}

#[derive(Serialize)]
struct JsonAddedToken<'a> {
    id: u32,
    content: &'a str,
    single_word: bool,
    lstrip: bool,
    rstrip: bool,
    normalized: bool,
    special: bool,
}

#[derive(Serialize)]
#[serde(tag = "type")]
enum JsonStage<'a> {
    ByteLevel { add_prefix_space: bool, trim_offsets: bool, use_regex: bool },
    Split { pattern: JsonPattern<'a>, behavior: &'static str, invert: bool },
    Sequence { pretokenizers: Vec<JsonStage<'a>> },
}

#[derive(Serialize)]
enum JsonPattern<'a> {
    Regex(&'a str),
}

#[derive(Serialize)]
struct JsonModel<'a> {
    r#type: &'static str,
    dropout: (),
    unk_token: (),
    continuing_subword_prefix: (),
    end_of_word_suffix: (),
    fuse_unk: bool,
    byte_fallback: bool,
    ignore_merges: bool,
    #[serde(serialize_with = "serialize_vocab")]
    vocab: &'a [(u32, String)],
    merges: Vec<String>,
}

fn serialize_vocab<S: Serializer>(entries: &[(u32, String)], s: S) -> Result<S::Ok, S::Error> {
    s.collect_map(entries.iter().map(|(id, key)| (key, id)))
}

/// The merges must be a list.
pub fn write_tokenizer_json(spec: &Spec) -> Result<Vec<u8>> {
    let spelled = Spelled::new(spec)?;
    let mut added_tokens: Vec<JsonAddedToken<'_>> = spec
        .specials
        .iter()
        .map(|special| JsonAddedToken {
            id: special.id,
            content: &special.text,
            single_word: false,
            lstrip: false,
            rstrip: false,
            normalized: false,
            special: special.control,
        })
        .collect();
    added_tokens.sort_unstable_by_key(|token| token.id);
    let file = JsonFile {
        version: "1.0",
        truncation: (),
        padding: (),
        added_tokens,
        normalizer: (),
        pre_tokenizer: pre_tokenizer(spec)?,
        post_processor: byte_level(false, true),
        decoder: byte_level(true, true),
        model: JsonModel {
            r#type: "BPE",
            dropout: (),
            unk_token: (),
            continuing_subword_prefix: (),
            end_of_word_suffix: (),
            fuse_unk: false,
            byte_fallback: false,
            ignore_merges: spec.ignore_merges,
            vocab: &spelled.entries,
            merges: spelled.merge_lines(listed(spec)?)?,
        },
    };
    let mut out = serde_json::to_vec_pretty(&file)
        .map_err(|error| Error::tokenizer(format!("cannot be written as JSON: {error}")))?;
    out.push(b'\n');
    Ok(out)
}

fn byte_level<'a>(trim_offsets: bool, use_regex: bool) -> JsonStage<'a> {
    JsonStage::ByteLevel { add_prefix_space: false, trim_offsets, use_regex }
}

fn pre_tokenizer(spec: &Spec) -> Result<JsonStage<'_>> {
    if spec.pattern == ["gpt2"] {
        return Ok(byte_level(true, true));
    }
    let mut steps = Vec::with_capacity(spec.pattern.len() + 1);
    for stage in &spec.pattern {
        let regex = pattern::huggingface_regex(stage).unwrap_or(stage);
        if let Some(what) = dialect_difference(regex) {
            return Err(Error::tokenizer(format!(
                "the pattern {} has {what}, so that `tokenizers` would cut otherwise",
                shown(regex)
            ))
            .with_hint("write the pattern without, so that both mean the same"));
        }
        let pattern = JsonPattern::Regex(regex);
        steps.push(JsonStage::Split { pattern, behavior: "Isolated", invert: false });
    }
    steps.push(byte_level(true, false));
    Ok(JsonStage::Sequence { pretokenizers: steps })
}
