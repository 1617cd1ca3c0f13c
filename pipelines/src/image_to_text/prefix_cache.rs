//! What earlier conversations left behind, so that a new one that begins alike need not read it again.
//!
//! Kept are the key/value caches of whole conversations, for recurrent layers with checkpoints on the way, and the visual
//! tokens of pictures. A new prompt takes the longest beginning that it shares with any of them: equal token ids, and equal
//! pictures behind the image tokens. A conversation that goes on takes its cache along; one that branches off gets a copy
//! of the common part, so that neither disturbs the other. Answers are the same with and without.

use std::sync::Arc;

use atelier_kernels::Backend;

use super::cache::{Cache, Checkpoint};
use super::prompt::{PictureKey, Prompt};
use super::vision::Features;
use crate::Result;

/// Checkpoints of one conversation; each is as large as all recurrent states.
const MAX_CHECKPOINTS: usize = 8;

/// Earlier conversations and pictures, within a limit of memory; what has not been used for longest goes first.
///
/// What a running answer works with is not counted: it belongs to the answer until that ends.
#[derive(Debug)]
pub struct PrefixCache<B: Backend> {
    limit: u64,
    /// The pipeline whose states these are.
    owner: Option<u64>,
    clock: u64,
    conversations: Vec<Kept<Conversation<B>>>,
    pictures: Vec<Kept<Picture<B>>>,
}

#[derive(Debug)]
struct Kept<T> {
    used: u64,
    bytes: u64,
    what: T,
}

#[derive(Debug)]
struct Picture<B: Backend> {
    key: PictureKey,
    features: Arc<Features<B>>,
}

/// A conversation that has been read.
#[derive(Debug)]
pub(super) struct Conversation<B: Backend> {
    /// What the cache holds, token by token.
    pub(super) sequence: Sequence,
    pub(super) cache: Cache<B>,
    /// Ascending; none without recurrent layers.
    pub(super) checkpoints: Vec<Checkpoint<B>>,
}

/// A sequence as it is compared: token ids and what their image tokens show.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Sequence {
    pub(super) ids: Vec<u32>,
    /// Where each picture begins, and which it is.
    pub(super) pictures: Vec<(usize, PictureKey)>,
}

/// What is known of a prompt.
#[derive(Debug)]
pub(super) struct Known<B: Backend> {
    /// The part that need not be read.
    pub(super) cache: Option<Cache<B>>,
    pub(super) checkpoints: Vec<Checkpoint<B>>,
    /// How many tokens the prompt shares with an earlier one: where recurrent states were missing, more than the cache
    /// holds. Where two prompts part a third may part too.
    pub(super) shared: usize,
}

impl Sequence {
    pub(super) fn of(prompt: &Prompt) -> Self {
        let pictures = prompt.images.iter().map(|image| (image.slots.start, image.key)).collect();
        Self { ids: prompt.ids.clone(), pictures }
    }

    /// The first `length` tokens.
    pub(super) fn first(mut self, length: usize) -> Self {
        self.ids.truncate(length);
        self.pictures.retain(|(start, _)| *start < length);
        self
    }

    /// How many tokens two sequences begin with in common.
    fn common(&self, other: &Self) -> usize {
        let ids = self.ids.iter().zip(&other.ids).take_while(|(a, b)| a == b).count();
        let pictures = self.pictures.len().max(other.pictures.len());
        let differs = (0..pictures).find(|&i| self.pictures.get(i) != other.pictures.get(i));
        let start = |i: usize| {
            let starts =
                [&self.pictures, &other.pictures].map(|pictures| pictures.get(i).map_or(ids, |picture| picture.0));
            starts[0].min(starts[1])
        };
        differs.map_or(ids, |i| ids.min(start(i)))
    }
}

impl<B: Backend> Conversation<B> {
    fn bytes(&self) -> u64 {
        self.cache.bytes() + self.checkpoints.iter().map(Checkpoint::bytes).sum::<u64>()
    }

    /// The most tokens, up to `shared`, that the cache can go back to.
    fn reach(&self, shared: usize) -> usize {
        if !self.cache.recurrent() || shared == self.cache.len() {
            return shared;
        }
        self.checkpoints.iter().map(Checkpoint::len).filter(|&length| length <= shared).max().unwrap_or(0)
    }
}

/// Drops checkpoints, ascending, until there are few: of the two that are closest together the first.
pub(super) fn thin<B: Backend>(checkpoints: &mut Vec<Checkpoint<B>>) {
    while checkpoints.len() > MAX_CHECKPOINTS {
        let gap = |&at: &usize| checkpoints[at + 1].len() - checkpoints[at].len();
        let Some(closest) = (0..checkpoints.len() - 1).min_by_key(gap) else { return };
        checkpoints.remove(closest);
    }
}

impl<B: Backend> PrefixCache<B> {
    /// An empty one that holds at most `limit` bytes; 0 turns it off.
    #[must_use]
    pub fn new(limit: u64) -> Self {
        Self { limit, owner: None, clock: 0, conversations: Vec::new(), pictures: Vec::new() }
    }

    /// One that holds nothing.
    #[must_use]
    pub fn off() -> Self {
        Self::new(0)
    }

    /// Most bytes it may hold.
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Bytes it holds.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let conversations = self.conversations.iter().map(|kept| kept.bytes).sum::<u64>();
        conversations + self.pictures.iter().map(|kept| kept.bytes).sum::<u64>()
    }

    /// Number of conversations it holds.
    #[must_use]
    pub fn conversations(&self) -> usize {
        self.conversations.len()
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.conversations.clear();
        self.pictures.clear();
    }

    /// States of one model mean nothing to another: a new owner begins anew.
    pub(super) fn claim(&mut self, owner: u64) {
        if self.owner.replace(owner).is_some_and(|before| before != owner) {
            self.clear();
        }
    }

    /// A picture's visual tokens.
    pub(super) fn features(&mut self, key: PictureKey) -> Option<Arc<Features<B>>> {
        let now = self.tick();
        let kept = self.pictures.iter_mut().find(|kept| kept.what.key == key)?;
        kept.used = now;
        Some(Arc::clone(&kept.what.features))
    }

    /// Keeps a picture's visual tokens.
    pub(super) fn keep_features(&mut self, backend: &B, key: PictureKey, features: &Arc<Features<B>>) {
        if self.limit == 0 || self.features(key).is_some() {
            return;
        }
        let size = |x: &B::Tensor| (backend.shape(x).iter().product::<usize>() * size_of::<f32>()) as u64;
        let bytes = size(&features.tokens) + features.deepstack.iter().map(size).sum::<u64>();
        let what = Picture { key, features: Arc::clone(features) };
        let used = self.tick();
        self.pictures.push(Kept { used, bytes, what });
        self.evict();
    }

    /// The longest beginning of `sequence` that has been read, in a cache of `capacity` at least; its last token is never
    /// part of it, so that there is something to read.
    pub(super) fn begin(&mut self, backend: &B, sequence: &Sequence, capacity: usize) -> Result<Known<B>> {
        let most = sequence.ids.len().saturating_sub(1);
        let shared = |kept: &Kept<Conversation<B>>| kept.what.sequence.common(sequence).min(most);
        let best = (0..self.conversations.len()).map(|at| (at, shared(&self.conversations[at]))).max_by_key(
            |&(at, shared)| (self.conversations[at].what.reach(shared), shared, self.conversations[at].used),
        );
        let Some((at, shared)) = best else { return Ok(Known { cache: None, checkpoints: Vec::new(), shared: 0 }) };
        let reach = self.conversations[at].what.reach(shared);
        if reach == self.conversations[at].what.cache.len() && reach > 0 {
            // It goes on. Another one may part here later.
            let Conversation { cache, mut checkpoints, .. } = self.conversations.swap_remove(at).what;
            if cache.recurrent() && checkpoints.last().is_none_or(|last| last.len() < reach) {
                checkpoints.push(cache.checkpoint());
            }
            return Ok(Known { cache: Some(cache), checkpoints, shared });
        }
        let used = self.tick();
        self.conversations[at].used = used;
        if reach == 0 {
            return Ok(Known { cache: None, checkpoints: Vec::new(), shared });
        }
        let Conversation { cache, checkpoints, .. } = &self.conversations[at].what;
        let checkpoints: Vec<_> = checkpoints.iter().filter(|checkpoint| checkpoint.len() <= reach).cloned().collect();
        let here = checkpoints.last().filter(|checkpoint| checkpoint.len() == reach);
        let cache = cache.copy(backend, reach, here, capacity.max(reach))?;
        Ok(Known { cache: Some(cache), checkpoints, shared })
    }

    /// Keeps a conversation for later ones.
    pub(super) fn keep(&mut self, mut new: Conversation<B>) {
        let length = new.sequence.ids.len();
        if self.limit == 0 || length == 0 {
            return;
        }
        let used = self.tick();
        if let Some(longer) =
            self.conversations.iter_mut().find(|kept| kept.what.sequence.common(&new.sequence) == length)
        {
            // All of it is known. For recurrent layers its end is one more place to part.
            longer.used = used;
            return;
        }
        let new_sequence = &new.sequence;
        let contained =
            |kept: &mut Kept<Conversation<B>>| kept.what.sequence.common(new_sequence) == kept.what.sequence.ids.len();
        let shorter: Vec<_> = self.conversations.extract_if(.., contained).collect();
        for kept in shorter {
            new.checkpoints.extend(kept.what.checkpoints);
        }
        new.checkpoints.sort_by_key(Checkpoint::len);
        new.checkpoints.dedup_by_key(|checkpoint| checkpoint.len());
        thin(&mut new.checkpoints);
        self.conversations.push(Kept { used, bytes: new.bytes(), what: new });
        self.evict();
    }

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    fn evict(&mut self) {
        while self.bytes() > self.limit {
            let conversation = (0..self.conversations.len()).min_by_key(|&at| self.conversations[at].used);
            let picture = (0..self.pictures.len()).min_by_key(|&at| self.pictures[at].used);
            match (conversation, picture) {
                (Some(at), Some(other)) if self.pictures[other].used < self.conversations[at].used => {
                    self.pictures.swap_remove(other);
                }
                (Some(at), _) => {
                    self.conversations.swap_remove(at);
                }
                (None, Some(at)) => {
                    self.pictures.swap_remove(at);
                }
                (None, None) => return,
            }
        }
    }
}

#[cfg(test)]
mod tests;
