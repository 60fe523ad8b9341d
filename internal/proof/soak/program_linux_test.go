package soak_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// The handler of both units is this test binary, as a long-lived program: see docs/program.md. For each change it
// appends a line to the log of its unit, and then answers: so what is in the log was handled.

// programVariable names the directory of the logs for the process that is the program.
const programVariable = "CHANGEFEED_SOAK_PROGRAM"

// message is a message of the contract, as far as it matters here.
type message struct {
	Type    string `json:"type"`
	ID      int64  `json:"id,omitempty"`
	Version int    `json:"version,omitempty"`
	Batches int    `json:"batches,omitempty"`
	Unit    string `json:"unit,omitempty"`
	Changes []struct {
		Key      []string `json:"key"`
		Document struct {
			N int `json:"n"`
		} `json:"document"`
	} `json:"changes,omitempty"`
}

// runProgram speaks the contract until the processor ends it.
func runProgram(logs string) error {
	in, err := pipe("CHANGEFEED_READ_FD")
	if err != nil {
		return err
	}
	out, err := pipe("CHANGEFEED_WRITE_FD")
	if err != nil {
		return err
	}
	write := json.NewEncoder(out)
	var log *os.File
	lines := bufio.NewReaderSize(in, 1<<20)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return nil //nolint:nilerr // the end of the pipe is the end of the work
		}
		var m message
		if err := json.Unmarshal(line, &m); err != nil {
			return err
		}
		switch m.Type {
		case "hello":
			log, err = os.OpenFile(filepath.Join(logs, m.Unit+".handled"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
			if err == nil {
				err = write.Encode(message{Type: "hello", Version: 1, Batches: 8})
			}
		case "batch":
			var text strings.Builder
			for _, c := range m.Changes {
				fmt.Fprintf(&text, "%s %d\n", c.Key[0], c.Document.N)
			}
			if _, err = log.WriteString(text.String()); err == nil {
				err = write.Encode(message{Type: "done", ID: m.ID})
			}
		case "cancel":
			err = write.Encode(message{Type: "released", ID: m.ID})
		}
		if err != nil {
			return err
		}
	}
}

func pipe(variable string) (*os.File, error) {
	fd, err := strconv.ParseUint(os.Getenv(variable), 10, 16)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", variable, err)
	}
	return os.NewFile(uintptr(fd), variable), nil
}
