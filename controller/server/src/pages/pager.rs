//! Tables with more rows than a page shows.

use askama::Template;
use serde::Deserialize;

/// Rows per page.
const ROWS_PER_PAGE: usize = 50;

/// Maximum number of characters of a search.
const MAX_SEARCH_LEN: usize = 200;

/// What a list shows: a page, of the rows that contain a text.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ListQuery {
    /// Number of the page, from 1.
    page: Option<usize>,
    /// Text.
    q: String,
}

impl ListQuery {
    /// The text, without the spaces around it.
    pub(crate) fn search(&self) -> String {
        self.q.trim().chars().take(MAX_SEARCH_LEN).collect()
    }

    /// Whether one of the texts contains every word that is searched, in any case.
    pub(crate) fn matches(&self, texts: &[&str]) -> bool {
        let texts = texts.join("\n").to_lowercase();
        self.search().to_lowercase().split_whitespace().all(|word| texts.contains(word))
    }

    /// Number of rows before the page, and of rows on it.
    pub(crate) fn range(&self) -> (u32, u32) {
        let before = (self.page.unwrap_or(1).max(1) - 1).saturating_mul(ROWS_PER_PAGE);
        (u32::try_from(before).unwrap_or(u32::MAX), ROWS_PER_PAGE as u32)
    }

    /// Returns the links to the other pages of `total` rows.
    pub(crate) fn pager(&self, path: &'static str, total: usize) -> Pager {
        let pages = total.div_ceil(ROWS_PER_PAGE).max(1);
        let page = self.page.unwrap_or(1).clamp(1, pages);
        let first = (page - 1) * ROWS_PER_PAGE + 1;
        Pager { path, page, pages, first, total, search: self.search() }
    }

    /// Returns the rows of the page, and the links to the others.
    pub(crate) fn page<T>(&self, path: &'static str, rows: Vec<T>) -> (Vec<T>, Pager) {
        let pager = self.pager(path, rows.len());
        let rows = rows.into_iter().skip(pager.first - 1).take(ROWS_PER_PAGE).collect();
        (rows, pager)
    }
}

/// Links to the other pages of a list.
#[derive(Debug, Template)]
#[template(path = "pager.html")]
pub(crate) struct Pager {
    path: &'static str,
    page: usize,
    pages: usize,
    /// Number of the first row, from 1.
    first: usize,
    pub(crate) total: usize,
    pub(crate) search: String,
}

impl Pager {
    fn last(&self) -> usize {
        (self.first + ROWS_PER_PAGE - 1).min(self.total)
    }

    fn previous(&self) -> Option<String> {
        (self.page > 1).then(|| self.link(self.page - 1))
    }

    fn next(&self) -> Option<String> {
        (self.page < self.pages).then(|| self.link(self.page + 1))
    }

    fn link(&self, page: usize) -> String {
        let query = [("page", page.to_string()), ("q", self.search.clone())];
        let query = query.iter().filter(|(_, value)| !value.is_empty());
        let query: Vec<String> =
            query.map(|(name, value)| format!("{name}={}", super::query_text(value))).collect();
        format!("{}?{}", self.path, query.join("&"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_page_has_the_remaining_rows() {
        let query = ListQuery { page: Some(200), q: String::new() };
        let (rows, pager) = query.page("/runs", (0..10_020).collect());
        assert_eq!(rows, (9_950..10_000).collect::<Vec<_>>());
        assert_eq!((pager.page, pager.pages, pager.last()), (200, 201, 10_000));
        let query = ListQuery { page: Some(usize::MAX), q: String::new() };
        let (rows, pager) = query.page("/runs", (0..10_020).collect());
        assert_eq!((rows.len(), pager.first, pager.last()), (20, 10_001, 10_020));
        let (rows, pager) = ListQuery::default().page("/runs", Vec::<u8>::new());
        assert_eq!((rows.len(), pager.pages, pager.last()), (0, 1, 0));
    }

    #[test]
    fn search_needs_every_word_in_any_case() {
        let query = ListQuery { page: None, q: " Pi4  relay ".to_owned() };
        assert!(query.matches(&["Relay delay", "pi4"]));
        assert!(!query.matches(&["Relay delay"]));
        assert!(ListQuery::default().matches(&[]));
        let (_, pager) = ListQuery { page: None, q: "a b&c".into() }.page("/runs", vec![0; 60]);
        assert_eq!(pager.link(2), "/runs?page=2&q=a%20b%26c");
    }
}
