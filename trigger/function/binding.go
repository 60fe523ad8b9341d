package function

import (
	"cmp"
	"fmt"
	"strings"
)

const triggerType = "cosmosDBTrigger"

// readFunction reads a function, unless it is disabled, or is none for a change feed.
func (r *reader) readFunction(name string) {
	s := r.readFile(name+"/"+functionFile, true)
	if s == nil {
		return
	}
	if len(r.listed) > 0 && !hasName(r.listed, name) {
		r.notice("%s does not run: functions of host.json does not list it", name)
		return
	}
	if by := r.disabledBy(s, name); by != "" {
		r.notice("%s does not run: %s", name, by)
		return
	}
	bindings := s.sections("bindings")
	var triggers []*section
	for _, b := range bindings {
		if strings.HasSuffix(b.kind(), "trigger") {
			triggers = append(triggers, b)
		}
	}
	switch {
	case len(triggers) == 0 && len(bindings) > 0:
		r.refuse("%s: bindings has no trigger: want one of type %s", s.file, triggerType)
	case len(triggers) > 1:
		r.refuse("%s: bindings has %d triggers: want one", s.file, len(triggers))
	case len(triggers) == 1 && triggers[0].kind() != strings.ToLower(triggerType):
		kind, _ := triggers[0].text("type")
		r.notice("%s does not run: its trigger is %s, and only functions with a %s run here", name, kind, triggerType)
	case len(triggers) == 1:
		s.refuseUnknown(functionKnown, nil)
		r.addFunction(name, s, bindings)
	}
}

// kind returns the type of a binding in lower case.
func (s *section) kind() string {
	value, _ := s.findMember("type")
	text, _ := plainText(value)
	return strings.ToLower(text)
}

// disabledBy says what disables a function; empty if nothing does.
func (r *reader) disabledBy(s *section, name string) string {
	isTrue := func(text string) bool { return strings.EqualFold(text, "true") || text == "1" }
	for _, setting := range []string{"AzureWebJobs." + name + ".Disabled", "AzureWebJobs:" + name + ":Disabled"} {
		if value, ok := r.settings.get(setting); ok && isTrue(value) {
			return fmt.Sprintf("the setting %s is %s", setting, value)
		}
	}
	value, ok := s.findMember("disabled")
	if !ok {
		return ""
	}
	text, _ := plainText(value)
	if isTrue(text) {
		return "function.json has disabled"
	}
	if setting := strings.Trim(text, "%"); !strings.EqualFold(text, "false") && setting != "" { // the name of a setting
		if value, _ := r.settings.get(setting); isTrue(value) {
			return fmt.Sprintf("function.json has disabled, by the setting %s", setting)
		}
	}
	return ""
}

// sections returns an array of objects.
func (s *section) sections(name string) (all []*section) {
	value, ok := s.findMember(name)
	if !ok {
		s.r.refuse("%s is missing: want an array of bindings", s.nameOf(name))
		return nil
	}
	elements, err := parseArray(value)
	if err != nil || len(elements) == 0 {
		s.refuseValue(name, value, "an array of bindings")
		return nil
	}
	for i, element := range elements {
		path := fmt.Sprintf("%s[%d]", s.pathOf(name), i)
		members, err := parseObject(element)
		if err != nil {
			s.r.refuse("%s: %s is %s: want an object", s.file, path, shown(string(element)))
			continue
		}
		all = append(all, s.r.newSection(s.file, path, members))
	}
	return all
}

// addFunction reads a function with a Cosmos DB trigger.
func (r *reader) addFunction(name string, s *section, bindings []*section) {
	f := Function{Name: name, Retry: s.readRetry()}
	if f.Retry == nil {
		f.Retry = r.retry
	}
	taken := map[string]bool{}
	for _, b := range bindings {
		key, ok := b.text("name")
		if !ok || key == "" {
			r.refuse("%s is missing: want the key of the binding", b.nameOf("name"))
		} else if taken[key] {
			r.refuse("%s is %s, as that of another binding: want another", b.nameOf("name"), shown(key))
		}
		taken[key] = true
		direction, _ := b.text("direction")
		switch kind := b.kind(); {
		case kind == strings.ToLower(triggerType):
			f.Trigger = b.trigger()
			f.Trigger.Name = key
			if direction != "" && !strings.EqualFold(direction, "in") {
				r.refuse("%s is %s: want in", b.nameOf("direction"), shown(direction))
			}
		case kind == "cosmosdb" && strings.EqualFold(direction, "out"):
			out := b.readOutput()
			out.Name = key
			f.Outputs = append(f.Outputs, out)
		default:
			b.refuseBinding(kind, direction)
		}
	}
	r.app.Functions = append(r.app.Functions, f)
}

// refuseBinding refuses a binding that is neither the trigger nor an output into a container.
func (s *section) refuseBinding(kind, direction string) {
	const only = "only outputs of type cosmosDB are written here, so the function cannot run unchanged: let its program " +
		"do this itself, and remove the binding"
	switch {
	case kind == "":
		s.r.refuse("%s is missing: want the type of the binding", s.nameOf("type"))
	case strings.EqualFold(direction, "out"):
		s.r.refuse("%s is %s: %s", s.nameOf("type"), shown(kind), only)
	case strings.EqualFold(direction, "in"):
		s.r.refuse("%s is %s, an input: inputs are not read here, so the function cannot run unchanged: let its program "+
			"read this itself, and remove the binding", s.nameOf("type"), shown(kind))
	default:
		s.r.refuse("%s is %s: want in or out", s.nameOf("direction"), shown(cmp.Or(direction, "missing")))
	}
}
