package leasedoc

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/millrace/changefeed/feed"
)

// Leases of the Java processor are read but never written. An estimator shows their lag, and an operator who migrates
// a unit sees its positions.

// javaState reports whether a continuation is the base64 state of Java's processor, and decodes this state; a broken
// state is returned empty. .NET's ETag begins with a quote, which is not a base64 character. A bare number may be
// valid base64, but does not decode to an object.
func javaState(continuation string) (state []byte, java bool) {
	plain := strings.TrimRight(continuation, "=")
	for _, enc := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		if text, err := enc.DecodeString(plain); err == nil {
			return text, strings.HasPrefix(strings.TrimSpace(string(text)), "{")
		}
	}
	const openBrace = "ey" // base64 of {" and of { before other letters
	return nil, strings.HasPrefix(continuation, openBrace)
}

// readJavaState reads position and mode from a state, for the estimator and the lease tools.
func (r *reader) readJavaState(text []byte) {
	var state struct {
		Mode      string
		StartFrom struct {
			Type          string
			PointInTimeMs int64
			Etag          string
		}
		Continuation struct {
			Continuation []struct{ Token *string }
		}
	}
	const want = "the base64 of a Java processor's state, or an ETag in quotes"
	if err := json.Unmarshal(text, &state); err != nil {
		r.noteInvalid(memberContinuation, string(r.doc.get(memberContinuation)), want)
		return
	}
	r.parseMode(memberContinuation+".Mode", state.Mode)
	switch state.StartFrom.Type {
	case "NOW":
	case "BEGINNING":
		r.l.Position.Start = feed.FromBeginning()
	case "POINT_IN_TIME":
		r.readJavaTime(state.StartFrom.PointInTimeMs)
	case "LEASE", "LEGACY_CHECKPOINT":
		r.l.Position.Token = state.StartFrom.Etag
	default:
		r.noteInvalid(memberContinuation+".StartFrom.Type", state.StartFrom.Type,
			"BEGINNING, NOW, POINT_IN_TIME, LEASE or LEGACY_CHECKPOINT")
	}
	switch inner := state.Continuation.Continuation; {
	case len(inner) > 1:
		r.noteInvalid(memberContinuation+".Continuation", string(text), "one token")
	case len(inner) == 1 && inner[0].Token != nil:
		r.l.Position.Token = *inner[0].Token
	}
}

// readJavaTime reads a start time. It refuses a time that Go cannot write back.
func (r *reader) readJavaTime(ms int64) {
	if ms < 0 || ms > latestSecond*1000 {
		r.noteInvalid(memberContinuation+".StartFrom.PointInTimeMs", string(r.doc.get(memberContinuation)),
			"Unix milliseconds")
		return
	}
	r.l.Position.Start = feed.FromTime(time.UnixMilli(ms))
}

// isNewJava reports whether the document is a Java lease before its first checkpoint. Such a lease has no state.
func (r *reader) isNewJava() bool {
	return r.l.Position.Token == "" && r.doc.has("feedRange") && !r.doc.has(memberProperties)
}

// refuseJava marks a lease as Java's, even with other faults.
func (r *reader) refuseJava() {
	if r.l.Err != nil {
		r.l.Err = fmt.Errorf("%w: %w", feed.ErrForeignLease, r.l.Err)
		return
	}
	r.l.Err = ErrJava
}
