package function

import (
	"encoding/base64"
	"maps"
	"net"
	"net/url"
	"slices"
	"strings"
)

// isSettingName reports whether a text can be the name of a setting. Anything else in its place may be a secret.
func isSettingName(name string) bool {
	return !strings.ContainsAny(name, ";=%/+") && strings.TrimSpace(name) != ""
}

// connectionName returns the name of the setting of a connection.
func (s *section) connectionName(name, ifMissing string) string {
	text, ok := s.text(name)
	switch {
	case !ok || text == "":
		return ifMissing
	case strings.Contains(text, "=") && strings.Contains(strings.ToLower(text), "accountendpoint"):
		s.r.refuse("%s is a connection string: want the name of the setting that has it", s.nameOf(name))
		return ""
	case named.MatchString(text):
		s.r.refuse("%s is %s: want the name of the setting without percent signs, which Azure does not replace here",
			s.nameOf(name), shown(text))
		return ""
	case !isSettingName(text):
		s.r.refuse("%s is %s: want the name of a setting", s.nameOf(name), shown(text))
		return ""
	}
	return text
}

// places returns the settings that may have a connection, in the order in which the host of Azure looks.
func places(name string) []string {
	return []string{"ConnectionStrings:AzureWebJobs" + name, "AzureWebJobs" + name, "ConnectionStrings:" + name, name}
}

// stringVariables are the beginnings of the environment variables in which Azure has the connection strings of an app.
var stringVariables = []string{"CUSTOMCONNSTR_", "DOCDBCONNSTR_"}

// connectionString returns the value of a setting that may be a connection string.
func (s settings) connectionString(name string) string {
	if value, _ := s.get(name); value != "" {
		return value
	}
	if short, ok := strings.CutPrefix(name, "ConnectionStrings:"); ok {
		for _, variable := range stringVariables {
			if value, _ := s.get(variable + short); value != "" {
				return value
			}
		}
	}
	return ""
}

// connection reads the connection that a setting describes; member names the setting.
func (s *section) connection(member, name string) Connection {
	if name == "" { // refused already
		return Connection{}
	}
	for _, setting := range places(name) {
		if value := s.r.settings.connectionString(setting); value != "" {
			return s.fromString(member, setting, value)
		}
		if s.r.settings.hasBelow(setting) {
			return s.fromSection(member, setting)
		}
	}
	s.r.refuse("%s is %s: want a setting %s with a connection string, or %s__accountEndpoint; there is neither",
		s.nameOf(member), shown(name), shown(name), shown(name))
	return Connection{Setting: name}
}

// fromString reads a connection string, which no error may have.
func (s *section) fromString(member, setting, text string) Connection {
	c := Connection{Setting: setting}
	for part := range strings.SplitSeq(text, ";") {
		name, value, _ := strings.Cut(part, "=")
		value = strings.TrimSpace(value)
		switch strings.ToLower(strings.TrimSpace(name)) {
		case "accountendpoint":
			c.Endpoint = value
		case "accountkey":
			c.Key = value
		case "disableservercertificatevalidation":
			if strings.EqualFold(value, "true") {
				s.r.notice("setting %s: DisableServerCertificateValidation has no effect here: the certificate must be "+
					"valid, or be given as a file", setting)
			}
		}
	}
	const want = "AccountEndpoint=https://HOST:PORT/;AccountKey=KEY;"
	_, err := base64.StdEncoding.DecodeString(c.Key)
	switch {
	case c.Endpoint == "" || c.Key == "":
		s.r.refuse("%s is %s: the setting has no AccountEndpoint or no AccountKey: want %s", s.nameOf(member), setting, want)
	case err != nil:
		s.r.refuse("%s is %s: the AccountKey of the setting is not base64: want the key as the portal shows it",
			s.nameOf(member), setting)
	case !isEndpoint(c.Endpoint):
		s.r.refuse("%s is %s: the AccountEndpoint of the setting is %s: want a URL such as https://HOST:443/",
			s.nameOf(member), setting, shown(c.Endpoint))
	}
	return c
}

// isEndpoint reports whether a text is the URL of an account.
func isEndpoint(text string) bool {
	u, err := url.Parse(text)
	return err == nil && (u.Scheme == "https" || u.Scheme == "http") && u.Hostname() != "" && u.User == nil &&
		u.RawQuery == "" && strings.Trim(u.Path, "/") == ""
}

// hostPort returns the host and port of an endpoint, for comparisons.
func hostPort(endpoint string) string {
	u, err := url.Parse(endpoint)
	switch {
	case err != nil: // refused already
		return endpoint
	case u.Port() != "":
		return strings.ToLower(u.Host)
	}
	port := "443"
	if u.Scheme == "http" {
		port = "80"
	}
	return net.JoinHostPort(strings.ToLower(u.Hostname()), port)
}

// The settings of a connection with an identity.
var identityKnown = []string{
	"accountEndpoint", "clientId", "clientSecret", "credential", "managedIdentityObjectId", "managedIdentityResourceId",
	"tenantId", "tokenFilePath",
}

// fromSection reads the settings NAME__accountEndpoint and so on.
func (s *section) fromSection(member, setting string) Connection {
	get := func(name string) string {
		value, _ := s.r.settings.get(setting + ":" + name)
		return strings.TrimSpace(value)
	}
	shownName := strings.ReplaceAll(setting, ":", "__")
	for _, name := range slices.Sorted(maps.Keys(s.r.settings.values)) {
		below, ok := strings.CutPrefix(name, settingKey(setting)+":")
		if ok && !hasName(identityKnown, below) {
			s.r.refuse("%s is %s: the setting %s__%s is not known here: want %s", s.nameOf(member), setting, shownName, below,
				alternatives(below, identityKnown))
		}
	}
	c := Connection{Setting: setting, Endpoint: get("accountEndpoint"), Identity: Identity{
		TenantID: get("tenantId"), ClientID: get("clientId"), Secret: get("clientSecret"),
		ResourceID: get("managedIdentityResourceId"), ObjectID: get("managedIdentityObjectId"),
		TokenFile: get("tokenFilePath"),
	}}
	switch {
	case c.Endpoint == "":
		s.r.refuse("%s is %s: want a setting %s__accountEndpoint, or a connection string", s.nameOf(member), setting,
			shownName)
	case !isEndpoint(c.Endpoint):
		s.r.refuse("%s is %s: %s__accountEndpoint is %s: want a URL such as https://HOST:443/", s.nameOf(member), setting,
			shownName, shown(c.Endpoint))
	}
	kind, wrong := c.Identity.kind(get("credential"))
	if wrong != "" {
		s.r.refuse("%s is %s: %s__%s", s.nameOf(member), setting, shownName, wrong)
	}
	c.Identity.Kind = kind
	return c
}

// kind returns the kind of an identity, by NAME__credential and the settings that are there. wrong says which setting
// does not fit.
func (i Identity) kind(credential string) (kind IdentityKind, wrong string) {
	managed := []string{i.ClientID, i.ResourceID, i.ObjectID}
	given := len(slices.DeleteFunc(managed, func(id string) bool { return id == "" }))
	switch strings.ToLower(credential) {
	case string(IdentityManaged):
		if given > 1 {
			return kind, "clientId, managedIdentityResourceId and managedIdentityObjectId: want one of them"
		}
		return IdentityManaged, ""
	case string(IdentityWorkload):
		return IdentityWorkload, ""
	case "":
	default:
		return kind, "credential is " + shown(credential) + ": want managedidentity or workloadidentity, or none for " +
			"the identity of the environment or the machine"
	}
	switch {
	case i.Secret != "" && (i.TenantID == "" || i.ClientID == ""):
		return kind, "clientSecret is set: want tenantId and clientId beside it"
	case i.Secret != "":
		return IdentitySecret, ""
	case given > 0:
		return kind, "clientId is set alone: want credential managedidentity or workloadidentity, or a clientSecret, " +
			"beside it"
	}
	return IdentityDefault, ""
}
