package peer

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"time"
)

// The outcomes of a message, and other numbers of the protocol.
const (
	outcomeAccepted = 0x24
	outcomeRejected = 0x25
	outcomeReleased = 0x26
	outcomeModified = 0x27
	errorNumber     = 0x1d
	sourceNumber    = 0x28
	targetNumber    = 0x29

	conditionTooLarge = "amqp:link:message-size-exceeded"
	conditionTimeout  = "com.microsoft:timeout"

	ticks1970 = 621_355_968_000_000_000 // since the year 1, ten thousand per millisecond

	credit = 1000 // largest number of a sender's unsettled messages
)

// session is a session of AMQP: links with shared delivery numbers. (A session of Service Bus is a group of messages.)
type session struct {
	*conn
	channel  uint16
	links    map[uint32]*link // by handle
	received uint32           // transfers
	sent     uint32           // deliveries
	lent     map[uint32]loan
	waiting  []*waiting
}

// loan is a message in the hands of a receiver.
type loan struct {
	*entry
	to *link
}

// link is one direction of traffic with a queue, $cbs or a $management.
type link struct {
	handle     uint32
	name       string
	address    string
	replyTo    string // of a receiver: the address for answers to requests
	isReceiver bool   // the client receives
	credit     uint32
	count      uint32 // deliveries so far

	partial []byte // an incomplete delivery
	format  uint32
	number  uint32
	settled bool

	group    string // the session of Service Bus
	hasGroup bool
	answers  [][]byte // answers to requests, which wait for credit
}

func (l *link) isService() bool {
	return strings.HasPrefix(l.address, "$") || strings.HasSuffix(l.address, "/$management")
}

func (s *session) handleFrame(f frame) error {
	if f.number == performAttach {
		return s.handleAttach(f)
	}
	if f.number == performDisposition {
		s.handleDisposition(f)
		return nil
	}
	if f.number == performEnd {
		s.releaseLinks()
		delete(s.sessions, s.channel)
		s.writeFrame(performEnd, list{}, nil)
		return nil
	}
	handle := f.uint32At(0)
	if f.number == performFlow {
		handle = f.uint32At(4)
		if f.fieldAt(4) == nil {
			return nil // of the session
		}
	}
	l := s.links[handle]
	switch {
	case l == nil:
		return fmt.Errorf("performative %#x for the unknown link %d: %w", f.number, handle, errMalformed)
	case f.number == performFlow:
		s.handleFlow(l, f)
	case f.number == performTransfer:
		return s.handleTransfer(l, f)
	case f.number == performDetach:
		s.releaseLink(l)
		s.writeFrame(performDetach, list{handle, true}, nil)
	}
	return nil
}

func (s *session) writeFrame(number uint64, l list, payload []byte) {
	s.bufferFrame(frameAMQP, s.channel, number, l, payload)
}

// handleAttach makes a link. The answer has the same handle, and the other role.
func (s *session) handleAttach(f frame) error {
	_, source := fields(f.fieldAt(5))
	_, target := fields(f.fieldAt(6))
	l := &link{handle: f.uint32At(1), name: f.textAt(0), isReceiver: f.boolAt(2)}
	if s.links[l.handle] != nil {
		return fmt.Errorf("handle %d is in use: %w", l.handle, errMalformed)
	}
	s.links[l.handle] = l
	answer := list{l.name, l.handle, !l.isReceiver, f.fieldAt(3), f.fieldAt(4), f.fieldAt(5), f.fieldAt(6), nil, nil}
	if !l.isReceiver {
		l.address = target.textAt(0)
		answer = append(answer, nil, uint64(s.broker.maxMessage()))
		if n := s.broker.MaxBatch; n > 0 {
			answer = append(answer, nil, nil, dict{symbol("com.microsoft:max-message-batch-size"), uint64(n)})
		}
		s.writeFrame(performAttach, answer, nil)
		l.credit = credit
		s.sendFlow(l)
		return nil
	}
	l.address, l.replyTo = source.textAt(0), target.textAt(0)
	s.answerReceiver(&waiting{link: l, attach: f, until: time.Now().Add(waitsFor(f))})
	return nil
}

func problem(condition string) any {
	return described{uint64(errorNumber), list{
		symbol(condition), "as the test has asked for, or by a rule of the peer",
		nil,
	}}
}

// sendFlow gives credit to a sender, or informs a receiver about the delivery of all present messages.
func (s *session) sendFlow(l *link) {
	s.writeFrame(performFlow, list{
		s.received, uint32(window), s.sent, uint32(window), l.handle, l.count, l.credit,
		uint32(0), l.isReceiver,
	}, nil)
}

// handleFlow notes how many messages a receiver accepts.
func (s *session) handleFlow(l *link, f frame) {
	if !l.isReceiver {
		return
	}
	l.credit = f.uint32At(5) + f.uint32At(6) - l.count
	if f.boolAt(8) { // drain: the receiver wants only present messages
		s.deliverTo(l)
		l.count += l.credit
		l.credit = 0
		s.sendFlow(l)
	}
}

// handleTransfer receives a part of a message or of a batch, and accepts the whole with the last part.
func (s *session) handleTransfer(l *link, f frame) error {
	s.received++
	if l.isReceiver {
		return fmt.Errorf("transfer on the receiving link %s: %w", l.name, errMalformed)
	}
	if f.fieldAt(1) != nil {
		l.number, l.format, l.settled = f.uint32At(1), f.uint32At(3), f.boolAt(4)
	}
	l.partial = append(l.partial, f.payload...)
	if len(l.partial) > 2*s.broker.maxMessage() {
		return fmt.Errorf("%d bytes in one delivery: %w", len(l.partial), errMalformed)
	}
	if f.boolAt(5) && !f.boolAt(9) {
		return nil
	}
	payload := l.partial
	l.partial = nil
	l.count++
	if l.credit--; l.credit < credit/2 {
		l.credit = credit
		s.sendFlow(l)
	}
	if f.boolAt(9) { // aborted
		return nil
	}
	var condition string
	if l.isService() {
		s.answerRequest(l, payload)
	} else {
		msgs, err := parseTransfer(l.format, payload)
		if err != nil {
			return err
		}
		condition = s.broker.acceptMessages(l.address, msgs, len(payload))
	}
	if condition == Close {
		return s.conn.nc.Close()
	}
	if !l.settled {
		s.writeFrame(performDisposition, list{true, l.number, l.number, true, outcome(condition)}, nil)
	}
	return nil
}

func outcome(condition string) any {
	switch condition {
	case "":
		return described{uint64(outcomeAccepted), list{}}
	case Release:
		return described{uint64(outcomeReleased), list{}}
	case Modify:
		return described{uint64(outcomeModified), list{true, false, nil}}
	case Reject:
		return described{uint64(outcomeRejected), list{}}
	case Settle:
		return nil
	}
	return described{uint64(outcomeRejected), list{problem(condition)}}
}

// answerRequest answers a request: every token is valid, and there is nothing else to manage.
func (s *session) answerRequest(l *link, request []byte) {
	all, _ := sections(request)
	var id, replyTo any
	for _, part := range all {
		if p, ok := part.value.(list); ok && part.number == sectionProperties {
			id, replyTo = p.fieldAt(0), p.fieldAt(4)
		}
	}
	code, text := int32(202), "Accepted"
	if l.address != "$cbs" {
		code, text = 501, "Not Implemented"
	}
	b := appendSection(nil, sectionProperties, list{nil, nil, nil, nil, nil, id})
	b = appendSection(b, sectionApplicationProperties, dict{
		"status-code", code, "status-description", text,
		"statusCode", code, "statusDescription", text,
	})
	b = appendSection(b, sectionValue, nil)
	to := list{replyTo}.textAt(0)
	for _, receiver := range s.links {
		if receiver.isReceiver && receiver.address == l.address && (receiver.replyTo == to || receiver.name == to) {
			receiver.answers = append(receiver.answers, b)
			return
		}
	}
}

// deliverMessages sends as many messages as receivers have credit for, and answers receivers that waited for a session.
func (s *session) deliverMessages() {
	s.waiting = slices.DeleteFunc(s.waiting, s.answerReceiver)
	for _, l := range s.links {
		if l.isReceiver {
			s.deliverTo(l)
		}
	}
}

func (s *session) deliverTo(l *link) {
	for l.credit > 0 {
		if len(l.answers) > 0 {
			s.sendMessage(l, l.answers[0], true)
			l.answers = l.answers[1:]
			continue
		}
		if l.isService() {
			return
		}
		e := s.broker.lendNext(l.address, l.group)
		if e == nil {
			return
		}
		s.lent[s.sent] = loan{e, l}
		s.sendMessage(l, e.encodeMessage(), false)
	}
}

// lockedUntil returns the end of a lock for a receiver, in milliseconds since 1970. In fact a lock lasts as long as the
// link.
func lockedUntil() int64 { return time.Now().Add(5 * time.Minute).UnixMilli() }

// encodeMessage returns the message in the form for a receiver.
func (e *entry) encodeMessage() []byte {
	annotations := append(dict{
		symbol("x-opt-sequence-number"), e.sequence, symbol("x-opt-enqueued-time"), timestamp(0),
		symbol("x-opt-locked-until"), timestamp(lockedUntil()),
	}, e.annotations...)
	b := appendSection(nil, sectionHeader, list{true, nil, nil, nil, uint32(0)})
	return append(appendSection(b, sectionMessageAnnotations, annotations), e.bare...)
}

// sendMessage sends a message in as many frames as the client needs.
func (s *session) sendMessage(l *link, payload []byte, settled bool) {
	tag := make([]byte, 16) // Service Bus puts the lock token there
	binary.BigEndian.PutUint32(tag[12:], s.sent)
	room := s.maxFrame - 128 // for the rest of the frame
	for first := true; first || len(payload) > 0; first = false {
		part := payload[:min(room, len(payload))]
		payload = payload[len(part):]
		s.writeFrame(performTransfer, list{l.handle, s.sent, tag, uint32(0), settled, len(payload) > 0}, part)
	}
	s.sent++
	l.count++
	l.credit--
}

// handleDisposition settles messages with the outcome from their receiver.
func (s *session) handleDisposition(f frame) {
	if !f.boolAt(0) {
		return // a sender's disposition of its own messages
	}
	first, last := f.uint32At(1), f.uint32At(2)
	if f.fieldAt(2) == nil {
		last = first
	}
	number, _ := fields(f.fieldAt(4))
	var entries []*entry
	for n, e := range s.lent {
		if n >= first && n <= last {
			entries = append(entries, e.entry)
			delete(s.lent, n)
		}
	}
	s.broker.settleLoans(entries, number)
	state := f.fieldAt(4)
	if number == outcomeRejected {
		state = outcome("") // clients would take their own rejection for a failure
	}
	if !f.boolAt(3) {
		s.writeFrame(performDisposition, list{false, first, last, true, state}, nil)
	}
}

// releaseLink ends a link. Unsettled messages return to their session.
func (s *session) releaseLink(l *link) {
	delete(s.links, l.handle)
	s.waiting = slices.DeleteFunc(s.waiting, func(w *waiting) bool { return w.link == l })
	for n, e := range s.lent {
		if e.to == l {
			s.broker.settleLoans([]*entry{e.entry}, outcomeReleased)
			delete(s.lent, n)
		}
	}
	if l.hasGroup {
		s.broker.unlockSession(l.address, l.group)
	}
}

// releaseLinks ends all links.
func (s *session) releaseLinks() {
	for _, l := range s.links {
		s.releaseLink(l)
	}
}
