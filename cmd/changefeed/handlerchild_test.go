package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// The handlers of the suite of handlers: processes of this binary that do what the documents say, and write a journal
// of it. What a handler does is the same for all kinds; how it hears of a batch and how it answers is its dialect.

// suiteOrder is a document of the suite, and says what its handler does.
type suiteOrder struct {
	ID    string `json:"id"`
	Key   string `json:"key"`
	N     int    `json:"n"`
	Do    string `json:"do,omitempty"`    // empty to handle it
	Times int    `json:"times,omitempty"` // how often Do is done, before the order is handled; 0 is always
	Text  string `json:"text,omitempty"`  // why it fails
}

// What a handler does with an order. The first four are about its whole batch, of which nothing is handled.
const (
	doDie      = "die"      // ends itself with kill -9
	doHang     = "hang"     // never answers, and is deaf to SIGTERM
	doNonsense = "nonsense" // answers what its dialect does not have
	doWait     = "wait"     // waits at the gate, and handles the batch
	doFail     = "fail"     // fails, and goes on with the next key
	doPoison   = "poison"   // the same, and a retry cannot help
	doStop     = "stop"     // fails, and does not try the orders after it
)

// suiteNonsense is an answer in no dialect.
const suiteNonsense = "handled, I think"

// A suiteNote is a line of the journal.
type suiteNote struct {
	What    string    `json:"what"` // noteStart, noteBatch, noteWait or noteHandled
	PID     int       `json:"pid"`
	At      time.Time `json:"at"`
	Batch   string    `json:"batch,omitempty"`
	Attempt int       `json:"attempt,omitempty"` // 0 if the dialect does not tell it
	Key     string    `json:"key,omitempty"`
	N       int       `json:"n,omitempty"`
}

const (
	noteStart   = "start"   // a process begins
	noteBatch   = "batch"   // a batch has come
	noteWait    = "wait"    // a batch waits at the gate
	noteHandled = "handled" // an order has had its effect
)

// suiteAnswer is what a handler has to say about a batch.
type suiteAnswer struct {
	Nonsense bool
	Stopped  bool // Failed has one order, and those after it were not tried
	Failed   []suiteFailure
}

// suiteFailure is an order that has failed, in the words that all dialects share.
type suiteFailure struct {
	Index   int    `json:"index"`
	Error   string `json:"error"`
	Poison  bool   `json:"poison,omitempty"`
	Untried bool   `json:"untried,omitempty"` // an earlier order of its key has failed
}

// suiteWorker is a handler.
type suiteWorker struct{ dir string }

// runSuiteHandler is the command suitehandler: a kind, the directory of its cell, and for a webhook its address.
func runSuiteHandler() {
	w := suiteWorker{dir: os.Args[2]}
	err := w.note(suiteNote{What: noteStart})
	if err == nil {
		err = errors.Join(w.failToStart(), w.passGate("slow"))
	}
	if err == nil {
		err = w.speak(os.Args[1])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// speak handles batches in a dialect.
func (w suiteWorker) speak(kind string) error {
	switch kind {
	case "program":
		return w.handleInput()
	case "long-lived":
		return w.converse()
	case "webhook":
		return listenAndAnswer(os.Args[3], w.receive)
	case "function":
		return listenAndAnswer("127.0.0.1:"+os.Getenv("FUNCTIONS_CUSTOMHANDLER_PORT"), w.beInvoked)
	}
	return fmt.Errorf("kind is %q", kind)
}

// note adds a line to the journal.
func (w suiteWorker) note(n suiteNote) error {
	n.PID, n.At = os.Getpid(), time.Now()
	line, err := json.Marshal(n)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(w.dir, "journal"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(append(line, '\n'))
	return errors.Join(err, f.Close())
}

// brokenStart is the reason of a handler that ends during its start.
const brokenStart = "no such mailbox"

// failToStart fails as often as the file broken has bytes.
func (w suiteWorker) failToStart() error {
	times, err := os.ReadFile(filepath.Join(w.dir, "broken"))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	isDue, dueErr := w.isDue(suiteOrder{ID: "broken", Do: doDie, Times: len(times)})
	if isDue {
		return errors.New(brokenStart)
	}
	return errors.Join(err, dueErr)
}

// passGate waits until the test opens a gate, if there is one.
func (w suiteWorker) passGate(name string) error {
	_, err := os.ReadFile(filepath.Join(w.dir, name)) // a named pipe, whose end the test writes
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// isDue says whether the order is to be treated as it says once more, and counts that.
func (w suiteWorker) isDue(o suiteOrder) (bool, error) {
	if o.Do == "" || o.Times == 0 {
		return o.Do != "", nil
	}
	f, err := os.OpenFile(filepath.Join(w.dir, "did-"+o.ID), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return false, err
	}
	defer f.Close()
	if size, err := f.Seek(0, io.SeekEnd); err != nil || int(size) >= o.Times {
		return false, err
	}
	_, err = f.WriteString(".")
	return true, err
}

// handle does what the orders of a batch say.
func (w suiteWorker) handle(batch []suiteOrder, attempt int) (a suiteAnswer, err error) {
	id := fmt.Sprint(os.Getpid(), "/", time.Now().UnixNano())
	if err := w.note(suiteNote{What: noteBatch, Batch: id, Attempt: attempt}); err != nil {
		return a, err
	}
	due := make([]bool, len(batch))
	for i, o := range batch {
		if due[i], err = w.isDue(o); err != nil {
			return a, err
		}
		if !due[i] {
			continue
		}
		switch o.Do {
		case doDie:
			self, err := os.FindProcess(os.Getpid())
			if err != nil {
				return a, err
			}
			return a, errors.Join(self.Kill(), errors.New("it lives on"))
		case doHang:
			signal.Ignore(syscall.SIGTERM)
			<-time.After(time.Hour)
		case doNonsense:
			return suiteAnswer{Nonsense: true}, nil
		case doWait:
			err = errors.Join(w.note(suiteNote{What: noteWait, Batch: id}), w.passGate("gate"))
		}
	}
	return a, errors.Join(err, w.handleEach(id, batch, due, &a))
}

// handleEach handles the orders of a batch that do not fail. After one that fails, it tries no other of its key.
func (w suiteWorker) handleEach(id string, batch []suiteOrder, due []bool, a *suiteAnswer) error {
	failed := map[string]bool{} // by key
	for i, o := range batch {
		fails := due[i] && (o.Do == doFail || o.Do == doPoison || o.Do == doStop)
		if fails || failed[o.Key] {
			a.Failed = append(a.Failed, suiteFailure{i, o.Text, fails && o.Do == doPoison, !fails})
			if failed[o.Key] = true; fails && o.Do == doStop {
				a.Stopped = true
				return nil
			}
			continue
		}
		if err := w.note(suiteNote{What: noteHandled, Batch: id, Key: o.Key, N: o.N}); err != nil {
			return err
		}
	}
	return nil
}

// handleInput is the dialect of a program for each batch: its exit code is its only answer.
func (w suiteWorker) handleInput() error {
	var batch []suiteOrder
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		var o suiteOrder
		if err := json.Unmarshal(lines.Bytes(), &o); err != nil {
			return err
		}
		batch = append(batch, o)
	}
	attempt, err := strconv.Atoi(os.Getenv("CHANGEFEED_ATTEMPT"))
	if err != nil {
		return err
	}
	a, err := w.handle(batch, attempt)
	if len(a.Failed) > 0 {
		err = errors.Join(err, errors.New(a.Failed[0].Error))
	}
	return err
}

// converse is the dialect of a long-lived program: docs/program.md.
func (w suiteWorker) converse() error {
	var ends [2]*os.File
	for i, name := range []string{"CHANGEFEED_READ_FD", "CHANGEFEED_WRITE_FD"} {
		fd, err := strconv.Atoi(os.Getenv(name))
		if err != nil {
			return err
		}
		ends[i] = os.NewFile(uintptr(fd), name)
	}
	var writing sync.Mutex
	say := func(message string) error {
		writing.Lock()
		defer writing.Unlock()
		_, err := ends[1].WriteString(message + "\n")
		return err
	}
	if err := say(`{"type":"hello","version":1,"batches":4,"client":"suite"}`); err != nil {
		return err
	}
	var work sync.WaitGroup
	defer work.Wait() // a program may end its batches after the end of the pipe
	for in := bufio.NewReader(ends[0]); ; {
		line, err := in.ReadBytes('\n')
		if err != nil { // the end of the pipe: exit
			return nil
		}
		work.Go(func() {
			if err := w.answerMessage(line, say); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
		})
	}
}

// answerMessage answers a message if it is a batch. Nothing else that comes here wants an answer, except a cancel,
// which the answer to the batch crosses.
func (w suiteWorker) answerMessage(line []byte, say func(string) error) error {
	var m struct {
		Type    string
		ID      int64
		Attempt int
		Changes []struct{ Document suiteOrder }
	}
	if err := json.Unmarshal(line, &m); err != nil || m.Type != "batch" {
		return err
	}
	batch := make([]suiteOrder, len(m.Changes))
	for i, c := range m.Changes {
		batch[i] = c.Document
	}
	a, err := w.handle(batch, m.Attempt)
	switch {
	case err != nil:
		return err
	case a.Nonsense:
		return say(suiteNonsense)
	case len(a.Failed) == 0:
		return say(fmt.Sprintf(`{"type":"done","id":%d}`, m.ID))
	}
	return say(fmt.Sprintf(`{"type":"failed","id":%d,%s}`, m.ID, a.members()))
}

// members are the members of an answer that names what has failed, which long-lived programs and webhooks share.
func (a suiteAnswer) members() string {
	if a.Stopped {
		first := a.Failed[0]
		text, _ := json.Marshal(first.Error) // a string always marshals
		return fmt.Sprintf(`"done":%d,"error":%s`, first.Index, text)
	}
	items, _ := json.Marshal(a.Failed) // the same
	return `"items":` + string(items)
}

// listenAndAnswer answers requests until the process ends.
func listenAndAnswer(address string, answer http.HandlerFunc) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	return http.Serve(l, answer)
}

// receive is the dialect of a webhook: docs/webhook.md.
func (w suiteWorker) receive(to http.ResponseWriter, r *http.Request) {
	var batch []suiteOrder
	attempt, err := strconv.Atoi(r.Header.Get("Changefeed-Attempt"))
	err = errors.Join(err, json.NewDecoder(r.Body).Decode(&batch))
	var a suiteAnswer
	if err == nil {
		a, err = w.handle(batch, attempt)
	}
	if err != nil {
		http.Error(to, err.Error(), http.StatusInternalServerError)
		return
	}
	if a.Nonsense {
		writeJSON(to, suiteNonsense)
	} else if len(a.Failed) > 0 {
		writeJSON(to, "{"+a.members()+"}")
	}
}

// beInvoked is the dialect of a function: docs/functions.md.
func (w suiteWorker) beInvoked(to http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost { // it asks whether the program is ready
		return
	}
	var call struct{ Data struct{ Orders string } }
	var text string
	var batch []suiteOrder
	err := json.NewDecoder(r.Body).Decode(&call)
	if err == nil {
		err = json.Unmarshal([]byte(call.Data.Orders), &text)
	}
	if err == nil {
		err = json.NewDecoder(bytes.NewReader([]byte(text))).Decode(&batch)
	}
	var a suiteAnswer
	if err == nil {
		a, err = w.handle(batch, 0)
	}
	if len(a.Failed) > 0 {
		err = errors.Join(err, errors.New(a.Failed[0].Error))
	}
	switch {
	case err != nil:
		http.Error(to, strings.TrimSpace(err.Error()), http.StatusInternalServerError)
	case a.Nonsense:
		writeJSON(to, suiteNonsense)
	default:
		writeJSON(to, "{}")
	}
}

func writeJSON(to http.ResponseWriter, text string) {
	to.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(to, text) // fails if nobody waits for the answer any more
}
