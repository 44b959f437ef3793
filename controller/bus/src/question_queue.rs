//! Questions that wait for an answer: at most one of each node, in the order of their arrival.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use dwell_rollup::{Name, Question};

/// Maximum number of questions that are answered at once, so that records need not wait for long.
pub(crate) const MAX_QUESTIONS: usize = 200;

/// Time after which a node does not wait for an answer any more, and asks again.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// A question and the subject of its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) question: Question,
    pub(crate) reply: String,
    pub(crate) at: Instant,
}

/// Questions without an answer.
#[derive(Debug, Default)]
pub(crate) struct QuestionQueue {
    order: VecDeque<Name>,
    /// The last question of each node in `order`.
    asked: HashMap<Name, Asked>,
}

impl QuestionQueue {
    /// Adds a question. It takes the place of an earlier one of its node.
    pub(crate) fn add(&mut self, asked: Asked) {
        let node = asked.question.node.clone();
        if self.asked.insert(node.clone(), asked).is_none() {
            self.order.push_back(node);
        }
    }

    /// Takes the oldest questions, at most [`MAX_QUESTIONS`]. Those whose nodes do not wait any more are
    /// dropped.
    pub(crate) fn take(&mut self, now: Instant) -> Vec<Asked> {
        let mut taken = Vec::new();
        while taken.len() < MAX_QUESTIONS
            && let Some(node) = self.order.pop_front()
        {
            let asked = self.asked.remove(&node);
            let is_awaited = |asked: &Asked| now.duration_since(asked.at) < ANSWER_TIMEOUT;
            taken.extend(asked.filter(is_awaited));
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(node: usize, at: Instant) -> Asked {
        let node: Name = format!("n{node}").parse().unwrap();
        let question = Question { node, incarnations: Vec::new(), schedule_version: None };
        Asked { question, reply: "_INBOX.n.1".to_owned(), at }
    }

    #[test]
    fn questions_of_a_fleet_are_taken_in_parts() {
        let (mut queue, start) = (QuestionQueue::default(), Instant::now());
        (0..450).for_each(|node| queue.add(asked(node, start)));
        // A node that asks again keeps its place.
        queue.add(asked(0, start));
        let parts: Vec<_> = std::iter::repeat_with(|| queue.take(start)).take(4).collect();
        let lens: Vec<usize> = parts.iter().map(Vec::len).collect();
        assert_eq!(lens, [200, 200, 50, 0]);
        assert_eq!(parts[0][0].question.node.as_str(), "n0");
        assert_eq!(parts[2][49].question.node.as_str(), "n449");
    }

    #[test]
    fn questions_without_a_waiting_node_are_dropped() {
        let (mut queue, start) = (QuestionQueue::default(), Instant::now());
        (0..300).for_each(|node| queue.add(asked(node, start)));
        let later = start + ANSWER_TIMEOUT;
        queue.add(asked(7, later));
        queue.add(asked(300, later));
        let nodes: Vec<_> =
            queue.take(later).into_iter().map(|asked| asked.question.node.to_string()).collect();
        assert_eq!(nodes, ["n7", "n300"]);
        assert!(queue.asked.is_empty());
    }
}
