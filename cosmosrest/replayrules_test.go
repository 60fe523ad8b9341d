package cosmosrest

import (
	"slices"
	"strings"
)

// What the replay does not reach, and the differences that are accepted, each with its reason.

// replayRule accepts a difference: both texts must occur in the name of the exchange and in the difference.
type replayRule struct{ exchange, difference, why string }

var replayRules = []replayRule{}

// ruleFor returns the index of the rule for a difference, or -1.
func ruleFor(e *exchange, difference string) int {
	return slices.IndexFunc(replayRules, func(r replayRule) bool {
		return strings.Contains(e.name(), r.exchange) && strings.Contains(difference, r.difference)
	})
}

// unreachable returns why an exchange is not replayed.
func unreachable(e *exchange) string {
	for kind, why := range map[string]string{
		"/attachments": "attachments", "/sprocs": "stored procedures", "/triggers": "triggers", "/udfs": "functions",
		"/users": "users and permissions", "/media": "attachments",
	} {
		if strings.Contains(e.Path, kind) {
			return why
		}
	}
	if strings.HasPrefix(e.RequestBody, "(") || strings.Contains(e.RequestBody, "…") {
		return "the request is not recorded"
	}
	return ""
}

