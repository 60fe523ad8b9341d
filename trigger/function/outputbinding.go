package function

import (
	"regexp"
	"slices"
	"strings"
)

// keyPaths matches the path of a partition key.
var keyPaths = regexp.MustCompile(`^(/[^/]+)+$`)

// readOutput reads an output binding.
func (s *section) readOutput() Output {
	s.refuseUnknown(outputKnown, outputEarlier)
	out := Output{
		Database: s.required("databaseName", outputEarlier), Container: s.required("containerName", outputEarlier),
		Create:     s.boolean("createIfNotExists"),
		Throughput: s.count("containerThroughput"),
		Regions:    s.regions(),
	}
	out.Connection = s.connection("connection", s.connectionName("connection", defaultConnection))
	out.PartitionKey, _ = s.setting("partitionKey")
	if out.PartitionKey != "" && !keyPaths.MatchString(out.PartitionKey) {
		s.r.refuse("%s is %s: want a path such as /city", s.nameOf("partitionKey"), shown(out.PartitionKey))
	}
	kind, ok := s.text("dataType")
	out.IsBinary = ok && strings.EqualFold(kind, "binary")
	if ok && !slices.Contains([]string{"string", "binary", "stream"}, strings.ToLower(kind)) {
		s.r.refuse("%s is %s: want string or binary", s.nameOf("dataType"), shown(kind))
	}
	return out
}
