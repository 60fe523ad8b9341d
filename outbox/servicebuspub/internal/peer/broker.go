package peer

import (
	"sync"
)

// Broker has a queue for every name that a client uses. Set the fields before Serve.
type Broker struct {
	RequiresSession bool // like a queue with sessions: messages without a session are refused
	MaxMessage      int  // bytes of a message or batch; 0 is 256 KB
	MaxCount        int  // messages in a batch; 0 is no limit
	// bytes of a batch, as on Premium, where messages may be larger; 0 is the same as for a message
	MaxBatch int

	mu      sync.Mutex
	queues  map[string]*queue
	refused map[string]refusal // by the id of a message
	conns   map[*conn]bool
}

// queue contains the messages sent to an entity.
type queue struct {
	all   []*entry
	known map[string]bool  // ids
	locks map[string]*conn // sessions that a receiver has locked
}

// entry is a message in a queue.
type entry struct {
	*Message
	sequence int64
	lent     bool // a receiver has the message
	done     bool // the receiver has completed the message
	dead     bool // the receiver has rejected the message
}

// Messages returns all messages that a queue has accepted, without duplicates, in order.
func (b *Broker) Messages(name string) (msgs []Message) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range b.queueOf(name).all {
		msgs = append(msgs, *e.Message)
	}
	return msgs
}

// Left counts the messages of a queue that no receiver has completed.
func (b *Broker) Left(name string) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range b.queueOf(name).all {
		if !e.done {
			n++
		}
	}
	return n
}

// DeadLetters returns the ids of the messages of a queue that receivers have rejected.
func (b *Broker) DeadLetters(name string) (ids []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range b.queueOf(name).all {
		if e.dead {
			ids = append(ids, e.ID)
		}
	}
	return ids
}

// Conditions for Refuse that are no errors of Service Bus, but other ways to refuse a message.
const (
	Release = "released"           // the outcome of AMQP
	Modify  = "modified"           // the outcome of AMQP
	Reject  = "rejected"           // the outcome of AMQP, without a reason
	Settle  = "settled"            // no outcome at all
	Close   = "closed in mid-call" // the connection ends, and there is no answer
)

// refusal is the error condition with which a message is refused.
type refusal struct {
	condition string
	always    bool
}

// Refuse makes the broker answer the next message with an id, or the batch that contains it, with an error condition
// such as com.microsoft:server-busy.
func (b *Broker) Refuse(id, condition string) { b.addRefusal(id, refusal{condition, false}) }

// RefuseAlways makes the broker answer every message with an id with an error condition, from now on. With an empty
// condition the broker accepts them again.
func (b *Broker) RefuseAlways(id, condition string) { b.addRefusal(id, refusal{condition, true}) }

func (b *Broker) addRefusal(id string, r refusal) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.refused == nil {
		b.refused = map[string]refusal{}
	}
	b.refused[id] = r
}

// queueOf returns the queue of a name. The caller holds the lock.
func (b *Broker) queueOf(name string) *queue {
	if b.queues == nil {
		b.queues = map[string]*queue{}
	}
	q := b.queues[name]
	if q == nil {
		q = &queue{known: map[string]bool{}, locks: map[string]*conn{}}
		b.queues[name] = q
	}
	return q
}

// acceptMessages adds the messages of a transfer, all or none. If the broker refuses them, the result is a condition.
func (b *Broker) acceptMessages(name string, msgs []*Message, size int) (condition string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if size > b.maxMessage() || b.MaxCount > 0 && len(msgs) > b.MaxCount || b.MaxBatch > 0 && len(msgs) > 1 &&
		size > b.MaxBatch {
		return conditionTooLarge
	}
	for _, m := range msgs {
		if condition := b.judgeMessage(m); condition != "" {
			return condition
		}
	}
	q := b.queueOf(name)
	for _, m := range msgs {
		if q.known[m.ID] {
			continue
		}
		q.known[m.ID] = true
		q.all = append(q.all, &entry{Message: m, sequence: int64(len(q.all) + 1)})
	}
	b.wakeAll()
	return ""
}

// wakeAll makes each connection look for messages. The caller holds the lock.
func (b *Broker) wakeAll() {
	for c := range b.conns {
		c.wake()
	}
}

func (b *Broker) judgeMessage(m *Message) (condition string) {
	if r := b.refused[m.ID]; r.condition != "" {
		if !r.always {
			delete(b.refused, m.ID)
		}
		return r.condition
	}
	switch {
	case m.ID == "", len(m.ID) > 4*maxName, len(m.SessionID) > 4*maxName:
		return "com.microsoft:argument-error"
	case b.RequiresSession && !m.isInSession:
		return "amqp:not-allowed"
	case m.isInSession && m.isKeyed && m.SessionID != m.PartitionKey:
		return "com.microsoft:argument-error"
	}
	return ""
}

const maxName = 128 // characters

func (b *Broker) maxMessage() int {
	if b.MaxMessage > 0 {
		return b.MaxMessage
	}
	return 256 << 10
}

// lockSession gives a session to a receiver: the session with this id, or without an id the first free session with
// messages.
func (b *Broker) lockSession(name string, c *conn, id string, any bool) (session string, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	q := b.queueOf(name)
	if !any {
		return id, q.takeSession(id, c)
	}
	for _, e := range q.all {
		if e.isInSession && !e.done && !e.lent && q.takeSession(e.SessionID, c) {
			return e.SessionID, true
		}
	}
	return "", false
}

func (q *queue) takeSession(session string, c *conn) bool {
	if q.locks[session] != nil {
		return false
	}
	q.locks[session] = c
	return true
}

// lendNext lends the next message of a session.
func (b *Broker) lendNext(name, session string) *entry {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range b.queueOf(name).all {
		if !e.done && !e.lent && e.SessionID == session {
			e.lent = true
			return e
		}
	}
	return nil
}

// settleLoans ends the loan of messages: they are completed, dead letters, or free again.
func (b *Broker) settleLoans(entries []*entry, outcome uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range entries {
		e.lent, e.dead = false, outcome == outcomeRejected
		e.done = e.dead || outcome == outcomeAccepted
	}
}

// unlockSession frees a session.
func (b *Broker) unlockSession(name, session string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.queueOf(name).locks, session)
	b.wakeAll()
}

func (b *Broker) addConnection(c *conn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.conns == nil {
		b.conns = map[*conn]bool{}
	}
	b.conns[c] = true
}

func (b *Broker) removeConnection(c *conn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.conns, c)
}
