package sql

import (
	"context"
	"fmt"
	"time"
)

// The frame contains all state that changes while a query runs, and counts the work of the query.
//
// The cost of a query does not depend on the size of its answer: a triple self-join over an array of 2,000 elements
// visits 8 billion rows. So every loop over data spends work from an allowance. When the allowance is used up, the
// query ends with an error, instead of keeping a processor busy for minutes.

// frame is the state of an evaluation.
type frame struct {
	slots  []value // the document, then a value for each FROM and JOIN
	params []value
	memo   []memo // values of paths into the document, so a long OR finds each path only once
	round  int    // number of the present document, for the memo

	// number of the present combination of rows of FROM and JOIN in the outer plan, counted before WHERE
	combination int

	stack      []value   // arguments of the calls that are being evaluated
	aggregates []value   // results of aggregates
	keys       []value   // of the group whose row is being made
	apart      [][]value // rows of the subqueries that read the container themselves
	now        time.Time
	most       int // allowance of work for a document,
	bytely     int // and in addition for each of its bytes
	work       int // remaining allowance of this document
	perRow     int // work of a row
	err        *Error
	ctx        context.Context // of the run; may be nil
	asking     int             // work since the last call of the meter
	meter      Meter           // of the run; may be nil
	ended      error           // the meter's error
	spread     int             // bytes of arrays that are split at present

	patterns map[string]*expression  // compiled for RegexMatch
	computed map[string]*computation // computed properties of the container, by name

	distances map[string]string // distance functions of vectors, by path
	vectors   map[int][]float64 // decoded vectors of the query, by their offsets in its text
}

// memo is the value of a path in the document of a round. In a later round the value is out of date. Counting rounds
// is cheaper than clearing all memos for each document.
type memo struct {
	round int
	v     value
}

// A unit of work is the time to skip a byte, about two nanoseconds. The allowance limits a document to about a
// second. The other figures are measured: the number of units that an operation takes.
const (
	maxWork    = 1 << 29
	rowWork    = 50 // to visit a row of FROM or JOIN, in addition to the query's expressions
	textPerJob = 4  // bytes of query text that cost a unit for each row
	opWork     = 16 // to compute with two numbers, to compare two values, or to call a function
	slowWork   = 4  // to decode a byte, compared with skipping a byte
	deepWork   = 32 // to convert a byte of an array or object into the form for comparisons
	itemWork   = 64 // to split an array, for each element
	writeWork  = 16 // to write an element or a member

	askWork = 1 << 16 // work between two calls of the meter

	conditionWork = 1 << 20 // for the condition of a patch, because all writers wait,
	conditionByte = 8       // and in addition for each byte of the document
)

// failWith ends the evaluation; the first error counts.
func (f *frame) failWith(err *Error) {
	if f.err == nil {
		f.err = err
	}
}

// spendWork spends n units of work, and reports whether to go on.
func (f *frame) spendWork(n int) bool {
	f.work -= n
	f.asking += n
	switch {
	case f.work < 0:
		f.failWith(failf(-1, "The query takes too long on one document."))
	case f.asking > askWork:
		f.askMeter()
	}
	return f.err == nil
}

// askMeter reports the work done since the last call to the meter. askMeter also checks the context; a check in each
// step would cost more than the step.
func (f *frame) askMeter() {
	n := f.asking
	f.asking = 0
	if f.meter != nil && f.ended == nil {
		f.ended = f.meter.Work(n)
	}
	if f.ended != nil || f.ctx != nil && f.ctx.Err() != nil {
		f.failWith(failf(-1, "The query was ended."))
	}
}

// beginDocument prepares the frame for a document.
func (f *frame) beginDocument(doc []byte) {
	f.slots[rootSlot] = documentValue(doc)
	f.round++
	f.combination = 0
	f.work, f.err = f.most+f.bytely*len(doc), nil
}

// endError returns the error that ended the evaluation. If the context or the meter ended the evaluation, that error
// is returned, because the frame's own error is only a consequence.
func (f *frame) endError() error {
	switch {
	case f.err == nil:
		return nil
	case f.ctx != nil && f.ctx.Err() != nil:
		return fmt.Errorf("run query: %w", context.Cause(f.ctx))
	case f.ended != nil:
		return fmt.Errorf("run query: %w", f.ended)
	}
	return f.err
}
