package delivery

import (
	"fmt"
	"slices"
)

// BatchState is where a batch stands.
type BatchState uint8

// The states of a batch.
const (
	ToCall  BatchState = iota // it goes to the handler when its time has come and it is first in its lanes
	Calling                   // the handler has it
	Suspect                   // one change that has failed alone as often as it may: it waits for evidence
	ToPark                    // its letter is stored when its time has come and it is first in its lane
	Parking                   // its letter is being stored
	Over                      // its changes are settled, or other batches have them
)

// BatchEvent is why a batch changes its state.
type BatchEvent uint8

// The events of a batch.
const (
	TimeReached BatchEvent = iota // or a place in the handler, or in front of its lanes, is free
	HandlerDone
	HandlerFailed
	HandlerCut // the call was cut short, because the work on the lease ends
	Judged     // there is evidence that the change is at fault, or MaxAge has passed
	OutageOver
	Stored  // its letter
	Refused // its letter
	ConfirmedByHand
	KeyHeld       // its key is held from now on, so its changes are parked one by one
	KeySetAside   // its changes are read again later
	RequestServed // a release, or the letters before it are to be handed over
)

// transitions is the table of the states of a batch. A test compares it with this text, and the search of every
// interleaving visits each line:
//
//	state    event            next
//	ToCall   TimeReached      Calling
//	ToCall   TimeReached      Over      its parts take its place: it is too old, or too large
//	ToCall   ConfirmedByHand  Over
//	ToCall   KeyHeld          Over      its changes wait again, to be parked one by one
//	ToCall   KeySetAside      Over      its changes wait again, and are forgotten
//	ToCall   RequestServed    Over      its changes of one key make a batch of their own
//	ToCall   Judged           ToPark    MaxAge has passed
//	ToCall   HandlerFailed    ToCall    it is a part of a batch that has failed, here and below
//	ToCall   HandlerFailed    Over
//	ToCall   HandlerFailed    Suspect
//	ToCall   HandlerFailed    ToPark
//	Calling  HandlerDone      Over
//	Calling  HandlerCut       ToCall
//	Calling  HandlerCut       Suspect   it was one before, and was called to see whether an outage is over
//	Calling  HandlerFailed    ToCall    attempts are left, or it is an outage
//	Calling  HandlerFailed    Over      its parts take its place; or it was handed over again, or is confirmed
//	Calling  HandlerFailed    Suspect
//	Calling  HandlerFailed    ToPark    trying again cannot help, or there is evidence already
//	Suspect  Judged           ToPark
//	Suspect  TimeReached      Calling   to see whether an outage is over
//	Suspect  OutageOver       ToCall
//	Suspect  KeyHeld          Over
//	ToPark   TimeReached      Parking
//	ToPark   KeyHeld          Over      a change of its key before it was parked
//	ToPark   RequestServed    Over      its key may be free soon, so its change waits again
//	Parking  Stored           Over
//	Parking  Refused          ToPark
var transitions = map[BatchState]map[BatchEvent][]BatchState{
	ToCall: {
		TimeReached: {Calling, Over}, ConfirmedByHand: {Over}, KeyHeld: {Over}, KeySetAside: {Over},
		RequestServed: {Over}, Judged: {ToPark},
		HandlerFailed: {ToCall, Over, Suspect, ToPark},
	},
	Calling: {
		HandlerDone: {Over}, HandlerCut: {ToCall, Suspect}, HandlerFailed: {ToCall, Over, Suspect, ToPark},
	},
	Suspect: {Judged: {ToPark}, TimeReached: {Calling}, OutageOver: {ToCall}, KeyHeld: {Over}},
	ToPark:  {TimeReached: {Parking}, KeyHeld: {Over}, RequestServed: {Over}},
	Parking: {Stored: {Over}, Refused: {ToPark}},
}

// ChangeState is where a change stands.
type ChangeState uint8

// The states of a change.
const (
	Queued  ChangeState = iota // it waits in its lane
	Batched                    // a batch has it
	Handled                    // its handler is done with it, and has not confirmed it yet
	// it is done, parked, or left to a later read of its key: it does not come again from here
	Settled
)

// fraction is whether a change is told apart from the others of its transaction.
type fraction uint8

const (
	isWhole fraction = iota
	isNamed          // notes name it, because others of its transaction may have been tried differently
	isCut            // a batch has it without the others, and notes name it
)

// blame is whether the last failure of a batch counts.
type blame uint8

const (
	isCounted  blame = iota // as one of its attempts; or it has not failed
	isExcused               // not: the handler said so, an outage goes on, or the call began before the end of one
	isHopeless              // as the last attempt: the handler said that trying again cannot help
)

// blameFor is the blame of a failure.
func blameFor(hopeless, excused bool) blame {
	switch {
	case hopeless:
		return isHopeless
	case excused:
		return isExcused
	}
	return isCounted
}

// suspicion is what is known of a change that has failed alone as often as it may.
type suspicion uint8

const (
	notSuspected suspicion = iota
	isSuspected            // it was in the state Suspect, and has not failed since for another reason
	hasOutlived            // it was a suspect when an outage was over, so others were handled while it failed
)

// RequestState is where a request stands.
type RequestState uint8

// The states of a request.
const (
	Asked RequestState = iota
	Finding
	Redriving // its letter goes to the handler
	Removing
	Rewriting
	Listing
	Answered
)

// origin is who wants a request to be served.
type origin uint8

const (
	asked        origin = iota // an operator
	recalled                   // the engine: the letter was parked just before an outage was detected
	recalledDone               // the same, and the last owner has handled it: if it is gone, so is what held its key
	// the same, and the last owner's handler had it, so it may have ended the process: only if it is gone, there is
	// something to do
	recalledInHand
)

// stage is what a request has come to. It never goes back.
type stage uint8

const (
	ownLetter stage = iota // the letter that it names
	// that letter was not found: the letters held behind it, unless another letter of the key has failed
	heldLetters
	heldLettersOnly // the held letters, whatever else there is
	keyFreed        // its key was held, and is not any more
)

// RequestEvent is why a request changes its state.
type RequestEvent uint8

// The events of a request.
const (
	ItsTurn RequestEvent = iota
	LetterThere
	LetterGone // there is none that it may hand over
	LetterHandled
	LetterFailed
	Removed
	Rewritten
	BoxFailed // the letters could not be read or written
	Withdrawn
)

// requestTransitions is the table of the states of a request:
//
//	state      event            next
//	Asked      ItsTurn          Finding    a retry
//	Asked      ItsTurn          Listing    a release, or the held letters after a retry
//	Asked      Withdrawn        Answered
//	Finding    LetterThere      Redriving
//	Finding    LetterThere      Answered   nobody has asked, and it was in the handler when the last owner ended
//	Finding    LetterGone       Asked      its key is held: maybe for nothing
//	Finding    LetterGone       Answered   nothing to do
//	Finding    BoxFailed        Answered
//	Finding    Withdrawn        Answered
//	Redriving  LetterHandled    Removing
//	Redriving  LetterFailed     Rewriting
//	Redriving  LetterFailed     Answered   nobody has asked, and the outage goes on
//	Redriving  Withdrawn        Answered   its letter is not in the handler yet
//	Removing   Removed          Redriving  there are more letters
//	Removing   Removed          Asked      its key is held, or its letters are listed again
//	Removing   Removed          Answered   handled
//	Removing   BoxFailed        Answered
//	Rewriting  Rewritten        Answered   failed
//	Rewriting  BoxFailed        Answered
//	Listing    LetterThere      Redriving
//	Listing    LetterThere      Answered   an earlier change of its key is not done
//	Listing    LetterGone       Answered   the key is free; or it stays held for another letter that has failed
//	Listing    BoxFailed        Answered
//	Listing    Withdrawn        Answered
var requestTransitions = map[RequestState]map[RequestEvent][]RequestState{
	Asked: {ItsTurn: {Finding, Listing}, Withdrawn: {Answered}},
	Finding: {
		LetterThere: {Redriving, Answered}, LetterGone: {Asked, Answered}, BoxFailed: {Answered}, Withdrawn: {Answered},
	},
	Redriving: {LetterHandled: {Removing}, LetterFailed: {Rewriting, Answered}, Withdrawn: {Answered}},
	Removing:  {Removed: {Redriving, Asked, Answered}, BoxFailed: {Answered}},
	Rewriting: {Rewritten: {Answered}, BoxFailed: {Answered}},
	Listing: {
		LetterThere: {Redriving, Answered}, LetterGone: {Answered}, BoxFailed: {Answered},
		Withdrawn: {Answered},
	},
}

// mustAllow panics if a table does not have a transition.
func mustAllow[S, E ~uint8](table map[S]map[E][]S, what string, from S, because E, to S) {
	if !slices.Contains(table[from][because], to) {
		panic(fmt.Sprintf("%s in state %d: event %d does not lead to %d", what, from, because, to))
	}
}

// to changes the state.
func (q *Request) to(next RequestState, because RequestEvent) {
	mustAllow(requestTransitions, "request", q.State, because, next)
	if requestVisited != nil {
		requestVisited(q.State, because, next)
	}
	q.State = next
}

// requestVisited is told of each transition, as visited is.
var requestVisited func(RequestState, RequestEvent, RequestState)
