package natspub

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// requests are the requests that wait for an answer. The client has requests of its own, but these cost twice as much,
// and wait for their whole time although the connection is lost or the server has refused them.
type requests struct {
	inbox string // beginning of the subjects of answers

	mu      sync.Mutex
	last    uint64
	waiting map[string]*request // by the token after the inbox
}

// request is a waiting request. Its end is called once or more, with a nil message if there will be no answer.
type request struct {
	subject string
	end     func(answer *nats.Msg, err error)
}

var (
	errNoAnswer     = fmt.Errorf("no answer within %v", answerWithin)
	errDisconnected = errors.New("connection to the server is lost")
)

// answerWithin limits how long a server may take for an answer.
const answerWithin = 10 * time.Second

// add registers a request: end is called for the answer, until the caller calls remove.
func (r *requests) add(subject string, end func(*nats.Msg, error)) (token string, remove func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.waiting == nil {
		r.waiting = map[string]*request{}
	}
	r.last++
	token = strconv.FormatUint(r.last, 36)
	r.waiting[token] = &request{subject, end}
	return token, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.waiting, token)
	}
}

// send publishes a message and waits for the answer.
func (r *requests) send(ctx context.Context, conn *nats.Conn, msg *nats.Msg) (*nats.Msg, error) {
	type outcome struct {
		answer *nats.Msg
		err    error
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	ended := make(chan outcome, 1)
	token, remove := r.add(msg.Subject, func(answer *nats.Msg, err error) {
		select {
		case ended <- outcome{answer, err}:
		default: // the first outcome is enough
		}
	})
	defer remove()
	msg.Reply = r.inbox + token
	if err := conn.PublishMsg(msg); err != nil {
		return nil, err
	}
	late := time.NewTimer(answerWithin)
	defer late.Stop()
	select {
	case o := <-ended:
		return o.answer, o.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-late.C:
		return nil, errNoAnswer
	}
}

// callClient calls f, which makes a request with the client's own API to a subject.
func (r *requests) callClient(ctx context.Context, subject string, f func(ctx context.Context) error) error {
	ctx, stop := context.WithTimeoutCause(ctx, answerWithin, errNoAnswer)
	defer stop()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	_, remove := r.add(subject, func(_ *nats.Msg, err error) { cancel(err) })
	defer remove()
	err := f(ctx)
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// endAnswered ends the request to which a message is the answer.
func (r *requests) endAnswered(msg *nats.Msg) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if of := r.waiting[msg.Subject[len(r.inbox):]]; of != nil {
		of.end(msg, nil)
	}
}

// endAll ends all requests: their connection is gone, and with it their answers.
func (r *requests) endAll() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, of := range r.waiting {
		of.end(nil, errDisconnected)
	}
}

var deniedSubject = regexp.MustCompile(`Permissions Violation for Publish to "([^"]+)"`)

// endDenied ends the requests with the subject in an error of the server, because the server sends no other answer to
// them.
func (r *requests) endDenied(err error) {
	named := deniedSubject.FindStringSubmatch(err.Error())
	if named == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, of := range r.waiting {
		if of.subject == named[1] {
			of.end(nil, err)
		}
	}
}
