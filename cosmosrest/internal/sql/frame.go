package sql

import (
	"context"
	"fmt"
	"time"
)

// The frame: all that changes while a query runs, and the account of the work that it does.
//
// A query may cost far more than its answer is large: a triple self-join over an array of
// 2,000 elements visits 8 billion rows. So every loop over data spends work from an
// allowance; when that is used up the query ends with an error instead of keeping a
// processor busy for minutes.

// frame is the state of one evaluation.
type frame struct {
	slots  []value // the document, then a value per FROM and JOIN
	params []value
	memo   []memo // values of paths into the document, so that a long OR looks each up once
	round  int    // what the memo is for

	combination int // of rows of FROM and JOIN that the outer plan visits, counted before WHERE

	stack      []value   // arguments of the calls that are being made
	aggregates []value   // results of aggregates
	keys       []value   // of the group that is projected
	apart      [][]value // rows of the subqueries that read the container by themselves
	now        time.Time
	most       int // what a document may cost,
	bytely     int // and besides for each of its bytes
	work       int // what this one may still cost
	perRow     int // what a row costs
	err        *Error
	ctx        context.Context // of the run; nil is none
	asking     int             // work since it was last asked whether it has ended
	meter      Meter           // of the run; nil is none
	ended      error           // the meter's
	spread     int             // bytes of the arrays that are taken apart just now

	patterns map[string]*expression // compiled for RegexMatch
}

// memo is the value of a path in the document of a round; in a later round it is out of
// date. A counter is cheaper than to clear all memos for each document.
type memo struct {
	round int
	v     value
}

// A unit of work is the time to skip a byte, about two nanoseconds; the allowance bounds a
// document to about a second. The other figures are measured: how many such units an
// operation takes.
const (
	maxWork    = 1 << 29
	rowWork    = 50 // to visit a row of FROM or JOIN, besides what the query's expressions cost
	textPerJob = 4  // bytes of a query that cost a unit for each row
	opWork     = 16 // to compute with two numbers, to compare two values, or to call a function
	slowWork   = 4  // to decode a byte, not only to skip it
	deepWork   = 32 // to bring a byte of an array or object into the form in which they are compared
	itemWork   = 64 // to take an array apart, for each element
	writeWork  = 16 // to write an element or a member

	askWork = 1 << 16 // until a run asks whether it is to end

	conditionWork = 1 << 20 // for the condition of a patch, for which all writers wait,
	conditionByte = 8       // and besides for each byte of the document
)

// failWith ends the evaluation with its first error.
func (f *frame) failWith(err *Error) {
	if f.err == nil {
		f.err = err
	}
}

// spendWork takes n units of work, and reports whether to go on.
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

// askMeter gives the meter the work done since the last time. The context is looked at here and
// not in each step, because a look costs more than a step.
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

// beginDocument readies the frame for a document.
func (f *frame) beginDocument(doc []byte) {
	f.slots[rootSlot] = documentValue(doc)
	f.round++
	f.combination = 0
	f.work, f.err = f.most+f.bytely*len(doc), nil
}

// endError is the error with which the evaluation ended. An end from outside comes first,
// because the frame's own error is then only its echo.
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
