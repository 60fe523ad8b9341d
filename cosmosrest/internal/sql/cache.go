package sql

import (
	"container/list"
	"sync"
)

// The cache keeps the most recently used queries. A query of a usual length takes some fifty times the bytes of its text, a
// long one some ten times.
const (
	maxCached      = 256
	maxCachedBytes = 1 << 20   // of text, in all
	maxCachedQuery = 128 << 10 // a longer one is not kept
)

var parsed = &cache{entries: map[cacheKey]*list.Element{}}

type cache struct {
	mu      sync.Mutex
	entries map[cacheKey]*list.Element
	recent  list.List // of *entry, the latest used first
	bytes   int
}

type cacheKey struct {
	text      string
	condition bool
}

type entry struct {
	key   cacheKey
	query *Query
}

func (c *cache) get(key cacheKey) (*Query, error) {
	if q := c.find(key); q != nil {
		return q, nil
	}
	q, err := parse(key.text, key.condition)
	if err != nil {
		return nil, err
	}
	if len(key.text) <= maxCachedQuery {
		c.put(key, q)
	}
	return q, nil
}

func (c *cache) find(key cacheKey) *Query {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.entries[key]
	if !ok {
		return nil
	}
	c.recent.MoveToFront(e)
	return e.Value.(*entry).query
}

func (c *cache) put(key cacheKey, q *Query) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.entries[key]; ok {
		return
	}
	c.entries[key] = c.recent.PushFront(&entry{key, q})
	c.bytes += len(key.text)
	for len(c.entries) > maxCached || c.bytes > maxCachedBytes {
		old := c.recent.Remove(c.recent.Back()).(*entry)
		delete(c.entries, old.key)
		c.bytes -= len(old.key.text)
	}
}
