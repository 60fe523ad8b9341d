package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/changefeed"
)

// lineForm is the form of a change on a line.
type lineForm struct{ meta bool }

func (f *lineForm) register(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.meta, "meta", false, "tell more of each change than the document")
}

// told is a change with all there is to tell of it.
type told struct {
	LSN         int64           `json:"lsn"`
	Time        time.Time       `json:"time"`
	Op          string          `json:"op"`
	ID          string          `json:"id"`
	Key         json.RawMessage `json:"key"`
	Range       string          `json:"range"`
	Expired     bool            `json:"expired,omitempty"`
	Document    json.RawMessage `json:"document,omitempty"`
	Previous    json.RawMessage `json:"previous,omitempty"`
	PreviousLSN int64           `json:"previous_lsn,omitempty"`
	Next        string          `json:"next,omitempty"`
}

// write writes a change of a range, and the position behind it if there is one to tell.
func (f lineForm) write(w *bufio.Writer, r changefeed.Range, c changefeed.Change, next string) error {
	if !f.meta {
		return writeLine(w, c.Body)
	}
	t := told{
		LSN: c.LSN, Time: c.Time, Op: c.Op.String(), ID: c.ID, Key: json.RawMessage(c.PartitionKey),
		Range: r.String(), Expired: c.Expired, Document: c.Body,
		Previous: c.Previous, PreviousLSN: c.PreviousLSN, Next: next,
	}
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(t); err != nil {
		return fmt.Errorf("write change: %w", err)
	}
	return nil
}
