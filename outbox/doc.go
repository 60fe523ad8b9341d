// Package outbox is the transactional outbox.
package outbox
