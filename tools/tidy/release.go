package tidy

import "regexp"

// releaseFiles are the files that belong in the repository for its releases.
var releaseFiles = []*regexp.Regexp{
	regexp.MustCompile(`^\.goreleaser\.yaml$`),
	regexp.MustCompile(`^\.github/workflows/[a-z]+\.yml$`),
	regexp.MustCompile(`^tools/(goreleaser|release)/go\.(mod|sum)$`), // separate from the library's requirements
	regexp.MustCompile(`^api/[a-z-]+\.txt$`),                         // written by tools/api
}
