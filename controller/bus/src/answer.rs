//! Answers to questions of nodes: their receipts and their schedule.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use dwell_hub::store::{HubStore, HubTransaction};
use dwell_hub::{HubError, NodeId, Source, schedule_of};
use dwell_rollup::{Answer, Incarnation, MAX_ANSWER_LEN, Name, Question, RangeSet};

/// Number of incarnations whose receipts are read at once. Those of one have at most 800 KB as text.
const INCARNATIONS_BATCH: usize = 20;

/// Reads answers from the store.
#[derive(Debug, Default)]
pub(crate) struct Answerer {
    /// Numbers of nodes, which do not change.
    nodes: HashMap<Name, NodeId>,
}

/// The receipts of an answer.
#[derive(Clone, Debug, Default)]
struct Receipts {
    sets: BTreeMap<Incarnation, RangeSet>,
    /// Length of their text in bytes.
    len: usize,
}

impl Receipts {
    /// Adds those of an incarnation, if a message has space for them.
    fn add(&mut self, incarnation: Incarnation, set: RangeSet) {
        let len = self.len + set.to_string().len();
        if !set.is_empty() && len <= MAX_ANSWER_LEN {
            self.sets.insert(incarnation, set);
            self.len = len;
        }
    }
}

impl Answerer {
    /// Answers questions from one state of the store, in their order. A node sends again what is not in the
    /// answer, so nothing is lost without sets that it has no space for.
    pub(crate) fn answer(
        &mut self,
        store: &mut dyn HubStore,
        questions: &[Question],
    ) -> Result<Vec<Answer>, HubError> {
        let mut transaction = store.begin_to_read()?;
        // An answer without receipts makes a node send all again, so a new node is looked for.
        if questions.iter().any(|question| !self.nodes.contains_key(&question.node)) {
            let nodes = transaction.nodes()?.into_iter();
            self.nodes = nodes.map(|node| (node.name, node.id)).collect();
        }
        let receipts = self.receipts(&mut *transaction, questions)?;
        let newest = transaction.newest_version()?;
        let answer = |(question, receipts): (&Question, Receipts)| {
            let version = newest.filter(|version| question.schedule_version != Some(*version));
            let schedule = match version {
                Some(version) => {
                    Some(schedule_of(&mut *transaction, version, &question.node)?.to_json())
                }
                None => None,
            };
            Ok(Answer { node: question.node.clone(), receipts: receipts.sets, schedule })
        };
        questions.iter().zip(receipts).map(answer).collect()
    }

    /// Reads the receipts of the incarnations that are asked about.
    fn receipts(
        &self,
        transaction: &mut dyn HubTransaction,
        questions: &[Question],
    ) -> Result<Vec<Receipts>, HubError> {
        let mut receipts = vec![Receipts::default(); questions.len()];
        let mut wanted = Vec::new();
        for (at, question) in questions.iter().enumerate() {
            // A node without a number has no committed record.
            let Some(node) = self.nodes.get(&question.node) else { continue };
            let incarnations: BTreeSet<Incarnation> =
                question.incarnations.iter().copied().collect();
            let sources =
                incarnations.into_iter().map(|incarnation| Source { node: *node, incarnation });
            wanted.extend(sources.map(|source| (at, source)));
        }
        for part in wanted.chunks(INCARNATIONS_BATCH) {
            let sources: Vec<Source> = part.iter().map(|(_, source)| *source).collect();
            let states = transaction.incarnations(&sources)?;
            for ((at, source), state) in part.iter().zip(states) {
                receipts[*at].add(source.incarnation, state.receipts);
            }
        }
        Ok(receipts)
    }
}

/// Encodes an answer. Returns it with the schedule that it has no space for.
pub(crate) fn encode(mut answer: Answer) -> (String, Option<String>) {
    if let Ok(json) = answer.to_json() {
        return (json, None);
    }
    let schedule = answer.schedule.take();
    loop {
        match answer.to_json() {
            Ok(json) => return (json, schedule),
            Err(_) => {
                let ranges = |(_, set): &(&Incarnation, &RangeSet)| set.range_count();
                let longest = answer.receipts.iter().max_by_key(ranges);
                let Some(longest) = longest.map(|(incarnation, _)| *incarnation) else {
                    return (String::new(), schedule);
                };
                answer.receipts.remove(&longest);
            }
        }
    }
}

/// Encodes receipts of a node in as few messages as possible.
pub(crate) fn receipts_messages(
    node: &Name,
    receipts: BTreeMap<Incarnation, RangeSet>,
) -> Vec<String> {
    let answer = Answer { node: node.clone(), receipts, schedule: None };
    if let Ok(json) = answer.to_json() {
        return vec![json];
    }
    let single = answer.receipts.into_iter().filter_map(|receipt| {
        let receipts = BTreeMap::from([receipt]);
        Answer { node: node.clone(), receipts, schedule: None }.to_json().ok()
    });
    single.collect()
}

#[cfg(test)]
mod tests {
    use dwell_hub::{IncarnationState, SqliteStore};

    use super::*;

    fn sparse(count: u64) -> RangeSet {
        (0..count).map(|number| 1_000_000_000_000 + 2 * number).collect()
    }

    #[test]
    fn answer_reads_what_fits_of_the_incarnations_in_the_question() {
        let dir = tempfile::tempdir().unwrap();
        let mut store = SqliteStore::open(dir.path()).unwrap();
        let node: Name = "a".parse().unwrap();
        let mut transaction = store.begin().unwrap();
        let number = transaction.add_nodes(std::slice::from_ref(&node)).unwrap()[0];
        let state = |count| IncarnationState { receipts: sparse(count), ..Default::default() };
        let states = [(1, 20_000), (2, 20_000), (3, 20_000), (4, 20_000), (5, 20_000), (6, 10)];
        let states = states.map(|(incarnation, count)| {
            (Source { node: number, incarnation: Incarnation(incarnation) }, state(count))
        });
        transaction.set_incarnations(&states).unwrap();
        transaction.commit().unwrap();
        let mut ask = |incarnations: &[u64]| {
            let incarnations = incarnations.iter().copied().map(Incarnation).collect();
            let question = Question { node: node.clone(), incarnations, schedule_version: None };
            let answers = Answerer::default().answer(&mut store, &[question]).unwrap();
            let receipts = &answers[0].receipts;
            receipts.iter().map(|(of, set)| (of.0, set.range_count())).collect::<Vec<_>>()
        };
        assert_eq!(ask(&[6, 3, 3, 9]), [(3, 20_000), (6, 10)]);
        let fits = ask(&[1, 2, 3, 4, 5, 6]);
        assert!(
            fits.len() < 6 && fits.contains(&(1, 20_000)) && fits.contains(&(6, 10)),
            "{fits:?}"
        );
    }

    #[test]
    fn long_answers_lose_their_schedule_first() {
        let node: Name = "a".parse().unwrap();
        let receipts = [(1, 60_000), (2, 40_000), (3, 10)];
        let receipts: BTreeMap<_, _> =
            receipts.map(|(number, count)| (Incarnation(number), sparse(count))).into();
        let fits = BTreeMap::from([(Incarnation(3), receipts[&Incarnation(3)].clone())]);
        let schedule = Some("x".repeat(1 << 20));
        let answer = Answer { node: node.clone(), receipts: fits, schedule: schedule.clone() };
        let (json, left) = encode(answer.clone());
        assert_eq!(left, schedule);
        let read = Answer::from_json(json.as_bytes(), &node).unwrap();
        assert_eq!(read, Answer { schedule: None, ..answer });

        let answer = Answer { node: node.clone(), receipts: receipts.clone(), schedule: None };
        let (json, _) = encode(answer);
        let read = Answer::from_json(json.as_bytes(), &node).unwrap();
        assert_eq!(read.receipts.len(), 2, "all but the longest");
        assert_eq!(receipts_messages(&node, receipts).len(), 3);
    }
}
