package sql

import (
	"container/list"
	"sync"
)

// The cache of parsed queries. Programs send the same few texts repeatedly, with other parameters, and parsing a text
// costs more than answering a query that names an id.

// The cache keeps the most recently used queries. Both their text and their number are limited, because a compiled
// query takes some fifty times the bytes of a text of usual length, and some ten times those of a long text: 1 MB of
// text takes at most 50 MB.
const (
	maxCached      = 256
	maxCachedBytes = 1 << 20   // of text, in total
	maxCachedQuery = 128 << 10 // longer queries are not kept
)

// parsed is shared by all servers of the process, because a compiled query does not depend on a container.
var parsed = &cache{entries: map[cacheKey]*list.Element{}}

// cache is a least-recently-used cache.
type cache struct {
	mu      sync.Mutex
	entries map[cacheKey]*list.Element
	recent  list.List // of *entry, the most recently used first
	bytes   int
}

// cacheKey distinguishes queries from conditions, because a query is invalid as a condition, and a condition as a
// query.
type cacheKey struct {
	text      string
	condition bool
}

// entry is a query, with the key for its removal.
type entry struct {
	key   cacheKey
	query *Query
}

// get returns a query, and parses the query if necessary. Two callers may parse the same text at the same time,
// because this is cheaper than waiting. Errors are not kept, because invalid queries are not repeated for long.
func (c *cache) get(key cacheKey) (*Query, error) {
	if query := c.findParsed(key); query != nil {
		return query, nil
	}
	query, err := parse(key.text, key.condition)
	if err != nil {
		return nil, err
	}
	if len(key.text) <= maxCachedQuery {
		c.keepQuery(key, query)
	}
	return query, nil
}

// findParsed returns a query parsed before, or nil.
func (c *cache) findParsed(key cacheKey) *Query {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.entries[key]
	if !ok {
		return nil
	}
	c.recent.MoveToFront(e)
	return e.Value.(*entry).query
}

// keepQuery stores a query, and drops the least recently used queries.
func (c *cache) keepQuery(key cacheKey, query *Query) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.entries[key]; ok {
		return
	}
	c.entries[key] = c.recent.PushFront(&entry{key, query})
	c.bytes += len(key.text)
	for len(c.entries) > maxCached || c.bytes > maxCachedBytes {
		old := c.recent.Remove(c.recent.Back()).(*entry)
		delete(c.entries, old.key)
		c.bytes -= len(old.key.text)
	}
}
