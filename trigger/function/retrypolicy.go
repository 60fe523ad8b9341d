package function

import "strings"

var retryKnown = []string{
	"delayInterval", "maximumInterval", "maxRetryCount", "minimumInterval", "strategy",
}

// readRetry reads the retry policy; nil if there is none.
func (s *section) readRetry() *Retry {
	p := s.section("retry")
	if p == nil {
		return nil
	}
	p.refuseUnknown(retryKnown, nil)
	r := &Retry{}
	n, ok := p.integer("maxRetryCount", "the number of retries, or -1 without end")
	if _, found := p.findMember("maxRetryCount"); !found {
		p.r.refuse("%s is missing: want the number of retries, or -1 without end", p.nameOf("maxRetryCount"))
	} else if ok && n < -1 {
		p.r.refuse("%s is %d: want 0 or more, or -1 without end", p.nameOf("maxRetryCount"), n)
	}
	r.Max = n
	strategy, ok := p.text("strategy")
	switch {
	case ok && strings.EqualFold(strategy, "fixedDelay"):
		r.Fixed, _ = p.span("delayInterval")
		p.require("delayInterval", "fixedDelay")
		p.refuseOther("fixedDelay", "minimumInterval", "maximumInterval")
	case !ok || strings.EqualFold(strategy, "exponentialBackoff"):
		r.IsExponential = true
		r.Least, _ = p.span("minimumInterval")
		r.Most, _ = p.span("maximumInterval")
		p.require("minimumInterval", "exponentialBackoff")
		p.require("maximumInterval", "exponentialBackoff")
		p.refuseOther("exponentialBackoff, which is the default", "delayInterval")
		if r.Least > r.Most {
			p.r.refuse("%s is %v: want no more than maximumInterval, which is %v", p.nameOf("minimumInterval"), r.Least,
				r.Most)
		}
	default:
		p.r.refuse("%s is %s: want fixedDelay or exponentialBackoff", p.nameOf("strategy"), shown(strategy))
	}
	return r
}

// require refuses a strategy without one of its intervals.
func (s *section) require(name, strategy string) {
	if _, ok := s.findMember(name); !ok {
		s.r.refuse("%s is missing beside %s: want %s", s.nameOf(name), strategy, wantSpan)
	}
}

// refuseOther refuses intervals of the other strategy, which would be ignored.
func (s *section) refuseOther(strategy string, names ...string) {
	for _, name := range names {
		if _, ok := s.findMember(name); ok {
			s.r.refuse("%s has no effect beside the strategy %s: want none, or the other strategy", s.nameOf(name), strategy)
		}
	}
}
