package cosmosrest

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/millrace/changefeed/cosmosrest/internal/auth"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/internal/cosmosdb/service"
)

// Requests about the store as a whole, for administrators; the service has none of them.
// Both answers may take long, so they are sent while they are made.

// longAnswer sends an answer piece by piece. It may take for ever, as long as somebody
// reads.
type longAnswer struct {
	c       *call
	kind    string // of the content
	control *http.ResponseController
}

// answerLong is an answer with a kind of content.
func (c *call) answerLong(kind string) *longAnswer {
	return &longAnswer{c, kind, c.out.Control()}
}

// longPause is the time in which the client must take a piece.
const longPause = time.Minute // that the client may take for one piece

// Write sends a piece; the first makes the answer a 200.
func (a *longAnswer) Write(b []byte) (int, error) {
	_ = a.control.SetWriteDeadline(time.Now().Add(longPause)) // not every server has deadlines
	n, err := a.c.out.Stream(a.kind, b)
	if err == nil {
		_ = a.control.Flush() // the same
	}
	return n, err
}

// passOnEnd passes on an error that can still be answered, and logs one that cannot. Then the
// answer lacks its end, by which clients recognize it.
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
	Done       bool                 `json:"done,omitempty"`
	Violations []docstore.Violation `json:"violations,omitempty"`
	Error      string               `json:"error,omitempty"` // why it could not be done
}

// checkEvery is the pause between two lines, so that the connection is not taken for dead.
const checkEvery = time.Second // between two lines

// checkStore checks the store, and reports its progress line by line.
func checkStore(c *call) error {
	if err := c.allowAction(auth.Manage); err != nil {
		return err
	}
	c.out.Charge += service.ManageCharge
	a := c.answerLong("application/x-ndjson")
	out := json.NewEncoder(a)
	var state checkState
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
