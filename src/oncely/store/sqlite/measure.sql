-- Bytes on disk. The log and the index entries are counted by other means.
select null, p.page_count * s.page_size, null from pragma_page_count() p, pragma_page_size() s
