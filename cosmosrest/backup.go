package cosmosrest

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/millrace/changefeed/cosmosrest/internal/auth"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/internal/cosmosdb/service"
)

// Requests about the store as a whole, for administrators; the service does not have them. Both answers may take
// long, so they are sent in pieces while they are produced.

// longAnswer sends an answer piece by piece. The answer may take any time, as long as the client reads.
type longAnswer struct {
	c       *call
	kind    string // content type
	control *http.ResponseController
}

// answerLong returns a longAnswer with a content type.
func (c *call) answerLong(kind string) *longAnswer {
	return &longAnswer{c, kind, c.out.Control()}
}

// longPause is the time in which the client must read a piece.
const longPause = time.Minute // for one piece

// Write sends a piece. The first piece sends the status 200.
func (a *longAnswer) Write(b []byte) (int, error) {
	_ = a.control.SetWriteDeadline(time.Now().Add(longPause)) // not every server supports deadlines
	n, err := a.c.out.Stream(a.kind, b)
	if err == nil {
		_ = a.control.Flush() // not every server supports flushing
	}
	return n, err
}

// passOnEnd returns an error if the client can still get an answer. Otherwise passOnEnd logs the error, and the
// answer lacks its end, so clients notice the failure.
func (a *longAnswer) passOnEnd(err error) error {
	if err != nil && a.c.out.Status != 0 {
		a.c.s.log.Warn("answer broke off", "path", a.c.in.Path(), "err", err, "activity", a.c.out.Activity)
		return nil
	}
	return err
}

// sendBackup answers with a copy of the store, as [docstore.ReceiveBackup] reads it.
func sendBackup(c *call) error {
	if err := c.allowAction(auth.Manage); err != nil {
		return err
	}
	c.out.Charge += service.ManageCharge
	a := c.answerLong("application/x-tar")
	return a.passOnEnd(c.s.db.BackupTo(c.ctx, a))
}

// checkState is a line of the answer to a check; the last line has Done set.
type checkState struct {
	Records    int64                `json:"records"`
	Documents  int64                `json:"documents"` // in the store when the check began
	Done       bool                 `json:"done,omitempty"`
	Violations []docstore.Violation `json:"violations,omitempty"`
	Error      string               `json:"error,omitempty"` // why the check could not be done
}

// checkEvery is the pause between two lines. The lines show the client that the connection is alive.
const checkEvery = time.Second // between two lines

// checkStore checks the store, and reports its progress line by line.
func checkStore(c *call) error {
	if err := c.allowAction(auth.Manage); err != nil {
		return err
	}
	c.out.Charge += service.ManageCharge
	a := c.answerLong("application/x-ndjson")
	out := json.NewEncoder(a)
	state := checkState{Documents: c.s.db.Count()}
	var said time.Time
	var gone error
	var err error
	state.Violations, err = c.s.db.CheckAll(c.ctx, func(records int64) {
		state.Records = records
		if time.Since(said) >= checkEvery && gone == nil {
			gone, said = out.Encode(state), time.Now()
		}
	})
	state.Done = true
	if err != nil {
		state.Error = err.Error()
	}
	return a.passOnEnd(out.Encode(state))
}
