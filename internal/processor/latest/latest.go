// Package latest keeps what was seen last, for whoever asks: a value with its time, the values that stand under
// their keys, or since when each has stood. The zero values are ready; but for [Since] they may be used by several
// goroutines.
package latest

import (
	"maps"
	"slices"
	"sync"
	"time"
)

// Value is a value that was seen last, and when.
type Value[T any] struct {
	mu    sync.Mutex
	value T
	at    time.Time
}

// Set notes that a value is seen now.
func (v *Value[T]) Set(value T) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.value, v.at = value, time.Now()
}

// Get returns the value and its time, which is zero before the first.
func (v *Value[T]) Get() (value T, at time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.value, v.at
}

// Set has at most one value of each key.
type Set[K ~string, V any] struct {
	mu     sync.Mutex
	values map[K]V
}

// Put has a value stand, in place of another of its key.
func (s *Set[K, V]) Put(key K, value V) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.values == nil {
		s.values = map[K]V{}
	}
	s.values[key] = value
}

// Remove removes the values of some keys.
func (s *Set[K, V]) Remove(keys ...K) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, key := range keys {
		delete(s.values, key)
	}
}

// Values are the values that stand, in the order of their keys; nil when there are none.
func (s *Set[K, V]) Values() (all []V) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(s.values)) {
		all = append(all, s.values[key])
	}
	return all
}

// Since is since when each of some keys has been seen, time after time.
type Since[K comparable] struct{ first map[K]time.Time }

// See notes the keys that are seen now. Whatever is not among them is forgotten.
func (s *Since[K]) See(keys []K) {
	first := make(map[K]time.Time, len(keys))
	for _, key := range keys {
		at, known := s.first[key]
		if !known {
			at = time.Now()
		}
		first[key] = at
	}
	s.first = first
}

// For is how long a key has been seen; 0 if it was not seen the last time.
func (s *Since[K]) For(key K) time.Duration {
	at, known := s.first[key]
	if !known {
		return 0
	}
	return time.Since(at)
}

// Sees reports whether a key was seen the last time.
func (s *Since[K]) Sees(key K) bool {
	_, known := s.first[key]
	return known
}
