package function

import (
	"cmp"
	"strconv"
	"strings"
	"time"
)

// The defaults of the trigger.
const (
	defaultConnection = "CosmosDB"
	defaultLeases     = "leases"
	defaultPoll       = 5000 * time.Millisecond
	defaultAcquire    = 13000 * time.Millisecond
	defaultExpiration = 60000 * time.Millisecond
	defaultRenew      = 17000 * time.Millisecond
)

// trigger reads a Cosmos DB trigger.
func (s *section) trigger() Trigger {
	s.refuseUnknown(triggerKnown, triggerEarlier)
	t := Trigger{
		Database: s.required("databaseName", triggerEarlier), Container: s.required("containerName", triggerEarlier),
		LeaseContainer:  s.orDefault("leaseContainerName", defaultLeases),
		CreateLeases:    s.boolean("createLeaseContainerIfNotExists"),
		LeaseThroughput: s.count("leasesContainerThroughput"),
		Poll:            s.milliseconds("feedPollDelay", defaultPoll),
		Acquire:         s.milliseconds("leaseAcquireInterval", defaultAcquire),
		Expiration:      s.milliseconds("leaseExpirationInterval", defaultExpiration),
		Renew:           s.milliseconds("leaseRenewInterval", defaultRenew),
		MaxItems:        s.count("maxItemsPerInvocation"),
		Regions:         s.regions(),
	}
	t.LeasePrefix, _ = s.setting("leaseContainerPrefix")
	connection := s.connectionName("connection", defaultConnection)
	t.Connection = s.connection("connection", connection)
	t.LeaseConnection = t.Connection
	if lease := s.connectionName("leaseConnection", connection); lease != connection {
		t.LeaseConnection = s.connection("leaseConnection", lease)
	}
	t.LeaseDatabase = t.Database
	if s.hasMember("leaseDatabaseName") {
		t.LeaseDatabase, _ = s.setting("leaseDatabaseName")
		if t.LeaseDatabase == "" {
			s.r.refuse("%s is empty: want the database of the leases, or leave it out for that of databaseName",
				s.nameOf("leaseDatabaseName"))
		}
	}
	s.start(&t)
	s.checkTrigger(t)
	return t
}

// required returns a text that must not be empty. If its earlier name is there, the error about that is enough.
func (s *section) required(name string, earlier map[string]string) string {
	text, ok := s.setting(name)
	if _, found := s.findMember(name); text != "" || found && !ok {
		return text
	}
	for _, m := range s.members {
		if earlier[strings.ToLower(m.name)] == "want "+name {
			return ""
		}
	}
	s.r.refuse("%s is missing: want a name", s.nameOf(name))
	return ""
}

// orDefault returns a text that must not be empty if it is there.
func (s *section) orDefault(name, ifMissing string) string {
	text, ok := s.setting(name)
	if ok && text == "" {
		s.r.refuse("%s is empty: want a name, or leave it out for %s", s.nameOf(name), ifMissing)
	}
	return cmp.Or(text, ifMissing)
}

// regions returns the preferred regions.
func (s *section) regions() (regions []string) {
	text, _ := s.setting("preferredLocations")
	for region := range strings.SplitSeq(text, ",") {
		if region = strings.TrimSpace(region); region != "" {
			regions = append(regions, region)
		}
	}
	return regions
}

// start reads where new leases begin, and the mode.
func (s *section) start(t *Trigger) {
	t.FromBeginning = s.boolean("startFromBeginning")
	if text, ok := s.setting("startFromTime"); ok && text != "" {
		if t.FromTime, ok = parseTime(text); !ok {
			s.r.refuse("%s is %s: want a time with its zone, such as 2026-11-22T04:06:09Z or 2026-11-22T05:06:09+01:00",
				s.nameOf("startFromTime"), shown(text))
		}
		t.FromBeginning = t.FromBeginning || ok && t.FromTime.IsZero() // .NET's way to say the beginning
	}
	mode, ok := s.text("changeFeedMode")
	switch {
	case !ok || strings.EqualFold(mode, "LatestVersion"):
	case strings.EqualFold(mode, "AllVersionsAndDeletes"):
		t.AllVersions = true
	default:
		s.r.refuse("%s is %s: want LatestVersion or AllVersionsAndDeletes", s.nameOf("changeFeedMode"), shown(mode))
	}
	switch {
	case t.FromBeginning && !t.FromTime.IsZero():
		s.r.refuse("%s is set beside startFromBeginning: want one of the two", s.nameOf("startFromTime"))
	case t.AllVersions && (t.FromBeginning || !t.FromTime.IsZero()):
		s.r.refuse("%s is AllVersionsAndDeletes beside a start: want none, because all versions can begin only now",
			s.nameOf("changeFeedMode"))
	}
}

// parseTime reads a time with its zone.
func parseTime(text string) (t time.Time, ok bool) {
	for _, layout := range []string{
		time.RFC3339, "2006-01-02T15:04Z07:00", "2006-01-02 15:04:05Z07:00",
		"2006-01-02 15:04:05 Z07:00",
	} {
		if t, err := time.Parse(layout, strings.TrimSpace(text)); err == nil {
			return t, true
		}
	}
	return time.Time{}, false
}

// unfit are characters that the id of a document cannot have.
const unfit = "/\\?#\x00"

// checkTrigger refuses what cannot work together.
func (s *section) checkTrigger(t Trigger) {
	kind, ok := s.text("dataType")
	if ok && !strings.EqualFold(kind, "string") {
		s.r.refuse("%s is %s: want string, or none: a custom handler gets the batch as a text", s.nameOf("dataType"),
			shown(kind))
	}
	if strings.ContainsAny(t.LeasePrefix, unfit) || t.LeasePrefix != "" && strings.TrimSpace(t.LeasePrefix) == "" {
		s.r.refuse("%s is %s: want a text without / \\ ? # and U+0000, which ids of leases cannot have",
			s.nameOf("leaseContainerPrefix"), shown(strconv.Quote(t.LeasePrefix)))
	}
	if t.Database != "" && t.Database == t.LeaseDatabase && t.Container == t.LeaseContainer &&
		hostPort(t.Connection.Endpoint) == hostPort(t.LeaseConnection.Endpoint) {
		s.r.refuse("%s is %s, the monitored container: want another container", s.nameOf("leaseContainerName"),
			shown(t.LeaseContainer))
	}
	// An owner stops a tenth before its lease is anybody's.
	const tenths, parts = 9, 10
	if t.Renew >= t.Expiration*tenths/parts {
		s.r.refuse("%s is %d (default %d), and leaseExpirationInterval is %d (default %d): want less than nine tenths of "+
			"that, because others would take each lease before it is renewed", s.nameOf("leaseRenewInterval"),
			t.Renew.Milliseconds(), defaultRenew.Milliseconds(), t.Expiration.Milliseconds(),
			defaultExpiration.Milliseconds())
	}
}
