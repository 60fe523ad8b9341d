// Package docstore is an embedded document store with a change feed.
package docstore
