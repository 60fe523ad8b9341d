package cosmosrest

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/millrace/changefeed/docstore"
)

// What an administrator asks of the store as a whole, which the service has no request
// for. Both answers may take long, so they are sent while they are made.

// longAnswer sends an answer bit by bit. It has no end of time as long as somebody reads.
type longAnswer struct {
	c    *call
	kind string // of the content
}

const longPause = time.Minute // that the client may take for one bit

// Write sends a bit; the first one makes the answer a 200.
func (a *longAnswer) Write(b []byte) (int, error) {
	control := http.NewResponseController(a.c.w)
	_ = control.SetWriteDeadline(time.Now().Add(longPause)) // not every server has one
	if a.c.status == 0 {
		a.c.frame()
		a.c.set("Content-Type", a.kind)
		a.c.status = http.StatusOK
		a.c.w.WriteHeader(http.StatusOK)
	}
	n, err := a.c.w.Write(b)
	if err == nil {
		_ = control.Flush() // the same
	}
	return n, err
}

// ended passes on an error that can still be answered, and notes one that cannot: then the
// answer lacks its end, by which clients know.
func (a *longAnswer) ended(err error) error {
	if err != nil && a.c.status != 0 {
		a.c.s.log.Warn("answer broke off", "path", a.c.r.URL.Path, "err", err, "activity", a.c.activity)
		return nil
	}
	return err
}

// sendBackup answers with a copy of the store, as [docstore.ReceiveBackup] reads it.
func (c *call) sendBackup() error {
	if err := c.allow(actionManage); err != nil {
		return err
	}
	c.charge += chargeManage
	a := &longAnswer{c, "application/x-tar"}
	return a.ended(c.s.db.BackupTo(c.ctx, a))
}

// checkState is a line of the answer to a check; the last one is done.
type checkState struct {
	Records    int64                `json:"records"`
	Done       bool                 `json:"done,omitempty"`
	Violations []docstore.Violation `json:"violations,omitempty"`
	Error      string               `json:"error,omitempty"` // why it could not be done
}

const checkEvery = time.Second // between two lines

// checkStore checks the store, and answers with a line now and then.
func (c *call) checkStore() error {
	if err := c.allow(actionManage); err != nil {
		return err
	}
	c.charge += chargeManage
	a := &longAnswer{c, "application/x-ndjson"}
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
	return a.ended(out.Encode(state))
}
