package sql

import (
	"container/list"
	"sync"
)

// The cache of parsed queries. Programs send the same few texts again and again, with other
// parameters, and to parse a text costs more than to answer a query that names an id.

// The cache keeps the most recently used queries. It is bounded by text as well as by
// number, because a compiled query takes some fifty times the bytes of a text of usual
// length, and some ten times those of a long one: 1 MB of text is at most 50 MB.
const (
	maxCached      = 256
	maxCachedBytes = 1 << 20   // of text, in all
	maxCachedQuery = 128 << 10 // a longer one is not kept
)

// parsed serves all servers of the process: a compiled query knows of no container.
var parsed = &cache{entries: map[cacheKey]*list.Element{}}

// cache is a least-recently-used cache.
type cache struct {
	mu      sync.Mutex
	entries map[cacheKey]*list.Element
	recent  list.List // of *entry, the latest used first
	bytes   int
}

// cacheKey separates queries from conditions, because each is an error where the other is expected.
type cacheKey struct {
	text      string
	condition bool
}

// entry is a query with the key under which it must be removed.
type entry struct {
	key   cacheKey
	query *Query
}

// get returns a query, parsed now if necessary. Two callers may parse the same text at
// once; that is cheaper than to have one wait for the other. Errors are not kept: nobody
// repeats them for long.
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

// findParsed returns a query that was parsed before, or nil.
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

// keepQuery keeps a query, and drops the least recently used ones.
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
