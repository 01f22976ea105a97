"""The paper's tables, measured: runs described, results kept, and the page that shows them."""
