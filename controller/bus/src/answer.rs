//! Answers to questions of nodes: their receipts and their schedule.

use std::collections::{BTreeMap, HashMap};

use dwell_hub::store::{HubStore, HubTransaction};
use dwell_hub::{HubError, NodeId, newest_schedule};
use dwell_rollup::{Answer, Incarnation, Name, Question, RangeSet};

/// Reads answers from the store.
#[derive(Debug, Default)]
pub(crate) struct Answerer {
    /// Numbers of nodes, which do not change.
    nodes: HashMap<Name, NodeId>,
}

impl Answerer {
    /// Answers questions from one state of the store, in their order.
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
        questions.iter().map(|question| self.one(&mut *transaction, question)).collect()
    }

    fn one(
        &self,
        transaction: &mut dyn HubTransaction,
        question: &Question,
    ) -> Result<Answer, HubError> {
        let mut receipts = BTreeMap::new();
        // A node without a number has no committed record.
        if let Some(node) = self.nodes.get(&question.node)
            && !question.incarnations.is_empty()
        {
            let states = transaction.incarnations_of(*node)?.into_iter();
            let asked = states.filter(|(of, _)| question.incarnations.contains(of));
            receipts.extend(asked.map(|(incarnation, state)| (incarnation, state.receipts)));
        }
        let newest = newest_schedule(transaction, &question.node)?;
        let schedule = newest
            .filter(|newest| question.schedule_version != Some(newest.version))
            .map(|newest| newest.to_json());
        Ok(Answer { node: question.node.clone(), receipts, schedule })
    }
}

/// Encodes an answer. Returns it with the schedule that it has no space for.
pub(crate) fn encode(mut answer: Answer) -> (String, Option<String>) {
    if let Ok(json) = answer.to_json() {
        return (json, None);
    }
    let schedule = answer.schedule.take();
    // A node sends again what is not in the answer, so nothing is lost without the longest sets.
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
    use super::*;

    fn sparse(count: u64) -> RangeSet {
        (0..count).map(|number| 1_000_000_000_000 + 2 * number).collect()
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
