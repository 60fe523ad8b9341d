package contract

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/changeline"
)

// Version is the version of the contract. Both ends say it in their hello.
const Version = 1

// maxMessage is the largest number of bytes of a message from the program. Answers are small, so a longer line is a
// mistake, such as a document that was printed to the wrong pipe.
const maxMessage = 16 << 20

// maxText is the largest number of bytes of an error text that the host keeps.
const maxText = 8 << 10

// Kind is the kind of a message: its member "type".
type Kind string

// The kinds.
const (
	KindHello        Kind = "hello"        // both ways, first
	KindBatch        Kind = "batch"        // to the program
	KindCancel       Kind = "cancel"       // to the program: give a batch up
	KindStop         Kind = "stop"         // to the program: no further batch comes; to the host: end the processor
	KindCheckpointed Kind = "checkpointed" // to the program: the outcome of a checkpoint
	KindError        Kind = "error"        // to the program: the breach of the contract, or why the processor ends
	KindDone         Kind = "done"         // to the host: a batch is handled
	KindFailed       Kind = "failed"       // to the host: a batch, or a part of it, has failed
	KindReleased     Kind = "released"     // to the host: a canceled batch is given up
	KindCheckpoint   Kind = "checkpoint"   // to the host: store the position of a batch
	KindHeartbeat    Kind = "heartbeat"    // to the host: the program is alive
)

// Cause says why a batch is canceled.
type Cause string

// The causes.
const (
	CauseLost    Cause = "lost"    // another instance may own the lease soon: the program must have no effect any more
	CauseTimeout Cause = "timeout" // the batch takes longer than HandlerTimeout
	CauseStopped Cause = "stopped" // the processor stops or gives the lease away, and its patience is over
)

// causeOf returns the cause for the context of a handler that has ended with an error.
func causeOf(err error) Cause {
	switch {
	case errors.Is(err, feed.ErrLeaseLost):
		return CauseLost
	case errors.Is(err, feed.ErrHandlerTimeout):
		return CauseTimeout
	}
	return CauseStopped
}

// errorOf returns the error with which the context of a handler ends at a cause.
func (c Cause) errorOf() error {
	switch c {
	case CauseLost:
		return feed.ErrLeaseLost
	case CauseTimeout:
		return feed.ErrHandlerTimeout
	}
	return feed.ErrStopped
}

// hostHello is the hello of the host.
type hostHello struct {
	Type     Kind   `json:"type"`
	Version  int    `json:"version"`
	Unit     string `json:"unit,omitempty"`
	Instance string `json:"instance,omitempty"`
	Manual   bool   `json:"manual,omitempty"` // the program must send checkpoints for handled batches

	Can []string `json:"can,omitempty"` // abilities; a program uses none that is not here
}

// batchHead is a batch without its changes, which the host appends as text.
type batchHead struct {
	Type     Kind    `json:"type"`
	ID       int64   `json:"id"`
	Lease    string  `json:"lease"`
	Range    string  `json:"range"`
	Instance string  `json:"instance"`
	Epoch    int64   `json:"epoch"`
	Attempt  int     `json:"attempt"`
	Cut      bool    `json:"cut,omitempty"`
	Redriven bool    `json:"redriven,omitempty"`
	Manual   bool    `json:"manual,omitempty"`
	Session  string  `json:"session,omitempty"`
	Position string  `json:"position,omitempty"`
	Head     int64   `json:"head,omitempty"`
	Charge   float64 `json:"charge,omitempty"`
	Seconds  float64 `json:"seconds,omitempty"` // how long the batch may take; 0 is no limit
}

// toProgram is every other message of the host.
type toProgram struct {
	Type    Kind    `json:"type"`
	ID      int64   `json:"id,omitempty"`
	Cause   Cause   `json:"cause,omitempty"`
	Seconds float64 `json:"seconds,omitempty"`
	Error   string  `json:"error,omitempty"`
	Code    string  `json:"code,omitempty"` // of the end of the processor, as Reason and Hint
	Reason  string  `json:"reason,omitempty"`
	Hint    string  `json:"hint,omitempty"`
}

// failedItem is a change of a batch that has failed.
type failedItem struct {
	Index   *int   `json:"index"` // among the changes of the batch, from 0
	Error   string `json:"error,omitempty"`
	Poison  bool   `json:"poison,omitempty"`
	Untried bool   `json:"untried,omitempty"`
}

// programHello has the members that only the hello of a program has.
type programHello struct {
	Version   int     `json:"version,omitempty"`
	Client    string  `json:"client,omitempty"`
	Batches   int     `json:"batches,omitempty"`
	Heartbeat float64 `json:"heartbeat,omitempty"`
	Columns   bool    `json:"columns,omitempty"` // the program wants the changes of a batch in columns
	Events    bool    `json:"events,omitempty"`  // the program wants events
	Tokens    bool    `json:"tokens,omitempty"`  // the program answers requests for tokens
}

// toHost is every message of the program.
type toHost struct {
	Type Kind `json:"type"`

	programHello

	// of a question, how long the answer may take; 0 is no limit
	Seconds float64 `json:"seconds,omitempty"`

	// the answer to a request for a token
	Token   string     `json:"token,omitempty"`
	Expires *time.Time `json:"expires,omitempty"`

	// answers
	ID     int64        `json:"id,omitempty"`
	Done   int          `json:"done,omitempty"`
	Items  []failedItem `json:"items,omitempty"`
	Error  string       `json:"error,omitempty"`
	Poison bool         `json:"poison,omitempty"`
	Outage bool         `json:"outage,omitempty"`
	After  float64      `json:"after,omitempty"`
}

// A BreachError says how the program has broken the contract.
type BreachError struct {
	Message string // the beginning of the message, or empty
	Reason  string
}

// Error quotes the message.
func (e *BreachError) Error() string {
	if e.Message == "" {
		return "the program has broken the contract: " + e.Reason
	}
	return fmt.Sprintf("the program has broken the contract: %s, in the message %s", e.Reason, e.Message)
}

// maxQuote is the number of bytes of a message that an error quotes.
const maxQuote = 200

// maybeToken is in a message that may have a token, also in invalid JSON or with other names: the word, or the
// beginning of a token of Microsoft Entra ID. The member of a hello that offers tokens is none.
var (
	maybeToken   = regexp.MustCompile(`(?i:token)|eyJ`)
	offersTokens = regexp.MustCompile(`"tokens" *: *(?:true|false)`)
)

// breach returns the error of a message.
func breach(message []byte, reason string, args ...any) *BreachError {
	message = bytes.TrimSpace(message)
	text := string(message[:min(len(message), maxQuote)])
	if len(message) > maxQuote {
		text += "…"
	}
	if maybeToken.Match(offersTokens.ReplaceAll(message, nil)) { // the text may come into a log
		text = "with a token"
	}
	return &BreachError{string(bytes.ToValidUTF8([]byte(text), []byte("�"))), fmt.Sprintf(reason, args...)}
}

// readLine returns the next message without its line end; at the end of the pipe, io.EOF. If the last message has no
// line end, the other end has died during the write, and the message is dropped. A line that fits into the buffer of r
// is valid until the next call.
func readLine(r *bufio.Reader) ([]byte, error) {
	var long []byte
	for {
		part, err := r.ReadSlice('\n')
		switch {
		case err == nil && long == nil:
			return part[:len(part)-1], nil
		case err == nil:
			return append(long, part[:len(part)-1]...), nil
		case errors.Is(err, bufio.ErrBufferFull) && len(long)+len(part) <= maxMessage:
			long = append(long, part...)
		case errors.Is(err, bufio.ErrBufferFull):
			return nil, breach(long, "a message is longer than %d MB", maxMessage>>20)
		default:
			return nil, err
		}
	}
}

// kindsToHost are the kinds of messages of a program.
const kindsToHost = "hello, done, failed, released, checkpoint, heartbeat, stop, status, caughtup or token"

// decodeToHost decodes a message of the program.
func decodeToHost(line []byte) (m toHost, err error) {
	if m, err = decodeMembers(line); err != nil {
		return m, err
	}
	switch m.Type {
	case KindHello, KindHeartbeat, KindStop:
		return m, nil
	case KindDone, KindFailed, KindReleased, KindCheckpoint:
		if m.ID <= 0 {
			return m, breach(line, "id is %d: want the id of the batch", m.ID)
		}
		return m, nil
	case KindStatus, KindCaughtUp, KindToken:
		if m.ID <= 0 {
			return m, breach(line, "id is %d: want a positive number", m.ID)
		}
		return m, nil
	case "":
		return m, breach(line, "type is missing: want %s", kindsToHost)
	}
	return m, breach(line, "type is %q: want %s", m.Type, kindsToHost)
}

// decodeMembers decodes the members of a message.
func decodeMembers(line []byte) (m toHost, err error) {
	if err := json.Unmarshal(line, &m); err != nil {
		if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && wrong.Field != "" {
			return m, breach(line, "%s is a JSON %s: want %s", wrong.Field, wrong.Value, jsonNames[wrong.Type.Kind()])
		} else if ok {
			return m, breach(line, "want a JSON object on a line, and not a JSON %s", wrong.Value)
		}
		return m, breach(line, "want a JSON object on a line (%v)", err)
	}
	return m, nil
}

// jsonNames names the types of members for the author of a program.
var jsonNames = map[reflect.Kind]string{
	reflect.String: "a string", reflect.Bool: "true or false", reflect.Slice: "an array", reflect.Struct: "an object",
	reflect.Int: "a whole number", reflect.Int64: "a whole number", reflect.Float64: "a number",
}

// failure returns the error of a batch of n changes that a message says, or a [*BreachError] if a member is wrong.
func (m *toHost) failure(line []byte, n int) (outcome, wrong error) {
	if m.Done < 0 || m.Done > 0 && m.Done >= n {
		return nil, breach(line, "done is %d, and the batch has %d changes: want fewer, because one has failed", m.Done, n)
	}
	if m.Done > 0 && len(m.Items) > 0 {
		return nil, breach(line, "done and items are set: want one of them")
	}
	if !(m.After >= 0 && m.After <= maxAfter.Seconds()) {
		return nil, breach(line, "after is %v: want seconds, from 0 to %v", m.After, maxAfter.Seconds())
	}
	whole := errorText(m.Error)
	if m.Poison {
		whole = feed.Poison(whole)
	}
	if m.Done == 0 && len(m.Items) == 0 && !m.Outage && m.After == 0 {
		return whole, nil
	}
	f := &feed.Failure{
		Done: m.Done, Outage: m.Outage, Err: whole, After: time.Duration(m.After * float64(time.Second)),
	}
	for _, item := range m.Items {
		switch {
		case item.Index == nil:
			return nil, breach(line, "an element of items has no index: want that of a change in the batch")
		case *item.Index < 0 || *item.Index >= n:
			return nil, breach(line, "index is %d: the batch has %d changes", *item.Index, n)
		case f.Items[*item.Index] != nil:
			return nil, breach(line, "index %d is in items twice", *item.Index)
		}
		if f.Items == nil {
			f.Items = map[int]error{}
		}
		f.Items[*item.Index] = item.cause()
	}
	if len(f.Items) > 0 && m.Error == "" {
		f.Err = nil // the text of the first change is the cause
	}
	return f, nil
}

// maxAfter is the longest pause that a program may ask for.
const maxAfter = 24 * time.Hour

// cause returns the error of a failed change.
func (i *failedItem) cause() error {
	switch {
	case i.Untried:
		return feed.ErrUntried
	case i.Poison:
		return feed.Poison(errorText(i.Error))
	}
	return errorText(i.Error)
}

// errorText returns an error with a text of the program, which may be cut.
func errorText(text string) error {
	if text == "" {
		text = "the program has failed and says no reason"
	}
	return errors.New(strings.ToValidUTF8(text[:min(len(text), maxText)], ""))
}

// encode returns a message of texts and finite numbers as a line.
func encode(message any) []byte {
	line, _ := marshalLine(message) // always JSON
	return line
}

func marshalLine(message any) ([]byte, error) {
	var line bytes.Buffer
	enc := json.NewEncoder(&line)
	enc.SetEscapeHTML(false)
	err := enc.Encode(message)
	return line.Bytes(), err
}

// encodeBatch appends a batch as a line, with the changes as objects or in columns.
func encodeBatch(dst []byte, head batchHead, b *feed.Batch, columns bool) ([]byte, error) {
	line, err := marshalLine(head)
	if err != nil {
		return dst, fmt.Errorf("encode batch: %w", err)
	}
	dst = slices.Grow(dst, len(line)+changesSize(b.Changes))
	dst = append(append(dst, line[:len(line)-len("}\n")]...), `,"changes":`...)
	if columns {
		if dst, err = changeline.AppendColumns(dst, b.Changes); err != nil {
			return dst, err
		}
		return append(dst, "}\n"...), nil
	}
	dst = append(dst, '[')
	for i := range b.Changes {
		if i > 0 {
			dst = append(dst, ',')
		}
		if dst, err = changeline.Append(dst, b.Range, &b.Changes[i], ""); err != nil {
			return dst, err
		}
	}
	return append(dst, "]}\n"...), nil
}

// changesSize estimates the number of bytes of changes as text.
func changesSize(changes []feed.Change) (n int) {
	const members = 200 // the other members of a change
	for _, c := range changes {
		n += len(c.Body) + len(c.Previous) + members
	}
	return n
}
