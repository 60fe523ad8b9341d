package cosmosrest

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/millrace/changefeed/cosmosrest/internal/wire"
)

// The policies for searches: which properties are vectors or texts, and their indexes. The server has no such
// indexes, and searches read all documents. So a policy has only two effects: the distance function of a vector is
// that of its policy, and the server refuses what the service refuses.

// vectorPolicy is a vector embedding policy.
type vectorPolicy struct {
	Embeddings []embedding `json:"vectorEmbeddings"`
}

// embedding describes the vectors at a path.
type embedding struct {
	Path       string `json:"path"`
	DataType   string `json:"dataType"`
	Dimensions int    `json:"dimensions"`
	Distance   string `json:"distanceFunction"`
}

// textPolicy is a full text policy.
type textPolicy struct {
	Language string     `json:"defaultLanguage"`
	Paths    []textPath `json:"fullTextPaths"`
}

// textPath describes the texts at a path.
type textPath struct {
	Path     string `json:"path"`
	Language string `json:"language"`
}

// searchIndexes are the indexes for searches in an indexing policy.
type searchIndexes struct {
	Vectors []vectorIndex  `json:"vectorIndexes"`
	Texts   []textIndex    `json:"fullTextIndexes"`
	Spatial []spatialIndex `json:"spatialIndexes"`

	Composite [][]indexedPath `json:"compositeIndexes"`
}

// vectorIndex is an index of vectors.
type vectorIndex struct {
	Path       string   `json:"path"`
	Type       string   `json:"type"`
	Bytes      *int     `json:"quantizationByteSize"`
	SearchList *int     `json:"indexingSearchListSize"`
	ShardKey   []string `json:"vectorIndexShardKey"`
}

// textIndex is an index of texts.
type textIndex struct {
	Path *string `json:"path"`
}

// spatialIndex is an index of geometries.
type spatialIndex struct {
	Path  string   `json:"path"`
	Types []string `json:"types"`
}

// The limits and names of the service.
const (
	maxDimensions   = 4096
	maxFlat         = 505 // dimensions of a flat index
	leastComposite  = 2   // paths
	maxQuantized    = 512 // bytes
	leastSearchList = 25
	maxSearchList   = 500
)

// flatType is the type of an index that keeps whole vectors.
const flatType = "flat"

var (
	vectorTypes   = []string{"float32", "float16", "int8", "uint8"}
	distanceNames = []string{"cosine", "dotproduct", "euclidean"}
	indexTypes    = []string{flatType, "quantizedFlat", "diskANN"}
	languages     = []string{"en-US", "fr-FR", "de-DE", "it-IT", "pt-BR", "pt-PT", "es-ES"}
	spatialTypes  = []string{"Point", "LineString", "Polygon", "MultiPolygon"}
)

// namesOne reports whether a name is in a list, ignoring case as the service does.
func namesOne(list []string, name string) bool {
	return slices.ContainsFunc(list, func(s string) bool { return strings.EqualFold(s, name) })
}

// checkSearch refuses policies and indexes for searches that the service would refuse.
func (p properties) checkSearch() error {
	var vectors vectorPolicy
	if err := p.decodeMember("vectorEmbeddingPolicy", `{"vectorEmbeddings":[{"path":"/vector","dataType":"float32",`+
		`"dimensions":256,"distanceFunction":"cosine"}]}`, &vectors); err != nil {
		return err
	}
	for _, e := range vectors.Embeddings {
		if err := e.check(); err != nil {
			return err
		}
	}
	var texts textPolicy
	if err := p.decodeMember("fullTextPolicy", `{"defaultLanguage":"en-US","fullTextPaths":[{"path":"/text",`+
		`"language":"en-US"}]}`, &texts); err != nil {
		return err
	}
	if err := texts.check(); err != nil {
		return err
	}
	var indexes searchIndexes
	if err := p.decodeMember("indexingPolicy", `an object such as {"vectorIndexes":[{"path":"/vector","type":"flat"}]}. `+
		"One of the specified inputs is invalid", &indexes); err != nil {
		return err
	}
	return indexes.check(vectors, texts)
}

// check refuses an embedding that the service would refuse.
func (e *embedding) check() error {
	switch {
	case !strings.HasPrefix(e.Path, "/"):
		return wire.BadRequest("The Vector Embedding Policy has an invalid Path:%s. want one that begins with /", e.Path)
	case !namesOne(vectorTypes, e.DataType):
		return wire.BadRequest("The Vector Embedding Policy has an invalid DataType:%s. want one of %s", e.DataType,
			strings.Join(vectorTypes, ", "))
	case e.Dimensions > maxDimensions:
		return wire.BadRequest("The Vector Embedding Policy has Dimensions:%d which is more than the maximum supported "+
			"value of %d", e.Dimensions, maxDimensions)
	case e.Dimensions < 1:
		return wire.BadRequest("The Vector Embedding Policy has Dimensions:%d. want 1 to %d", e.Dimensions, maxDimensions)
	case !namesOne(distanceNames, e.Distance):
		return wire.BadRequest("The Vector Embedding Policy has an invalid DistanceFunction:%s. want one of %s",
			e.Distance, strings.Join(distanceNames, ", "))
	}
	return nil
}

// check refuses a full text policy that the service would refuse.
func (t *textPolicy) check() error {
	for _, path := range append(t.Paths, textPath{"/", t.Language}) {
		if !strings.HasPrefix(path.Path, "/") {
			return wire.BadRequest("The Full Text Policy contains an invalid Path: %s. want one that begins with /",
				path.Path)
		}
		if path.Language != "" && !namesOne(languages, path.Language) {
			return wire.BadRequest("The Full Text Policy contains an unsupported language %s. Supported languages are: %s.",
				path.Language, strings.Join(languages, ", "))
		}
	}
	return nil
}

// check refuses indexes that the service would refuse.
func (s *searchIndexes) check(vectors vectorPolicy, texts textPolicy) error {
	for _, index := range s.Vectors {
		if err := index.check(vectors); err != nil {
			return err
		}
	}
	for i, index := range s.Texts {
		switch {
		case index.Path == nil:
			return wire.BadRequest("Missing path in full-text index specification at index (%d). want one such as %q", i,
				"/text")
		case !strings.HasPrefix(*index.Path, "/"):
			return wire.BadRequest("Full-text index specification at index (%d) contains invalid path. path is %q: want one "+
				"that begins with /", i, *index.Path)
		case !slices.ContainsFunc(texts.Paths, func(t textPath) bool { return t.Path == *index.Path }):
			return wire.BadRequest("The path of the Full Text Index %s does not match the path specified in the Full Text "+
				"Policy. want a path of fullTextPolicy.fullTextPaths", *index.Path)
		}
	}
	for i, index := range s.Spatial {
		if err := index.check(i); err != nil {
			return err
		}
	}
	for i, paths := range s.Composite {
		if n := len(paths); n < leastComposite {
			return wire.BadRequest("indexingPolicy.compositeIndexes[%d] has the length %d: want at least %d paths, because a "+
				"single path needs no composite index", i, n, leastComposite)
		}
	}
	return nil
}

// check refuses an index of vectors that the service would refuse.
func (v *vectorIndex) check(policy vectorPolicy) error {
	at := slices.IndexFunc(policy.Embeddings, func(e embedding) bool { return e.Path == v.Path })
	switch {
	case at < 0:
		return wire.BadRequest("The Vector Indexing Policy's path::%s not matching in Embedding's path. want a path of "+
			"vectorEmbeddingPolicy.vectorEmbeddings", v.Path)
	case !namesOne(indexTypes, v.Type):
		return wire.BadRequest("The Vector Indexing Policy's Index Type::%s is invalid. want one of %s", v.Type,
			strings.Join(indexTypes, ", "))
	case strings.EqualFold(v.Type, flatType) && policy.Embeddings[at].Dimensions > maxFlat:
		return wire.BadRequest("indexingPolicy.vectorIndexes has %s of type %s with %d dimensions: want at most %d, or "+
			"quantizedFlat or diskANN", v.Path, v.Type, policy.Embeddings[at].Dimensions, maxFlat)
	case len(v.ShardKey) > 1:
		return wire.BadRequest("The number of shard paths defined in the Vector Indexing Policy: %d exceeds the maximum: 1.",
			len(v.ShardKey))
	case len(v.ShardKey) == 1 && !strings.HasPrefix(v.ShardKey[0], "/"):
		return wire.BadRequest("The Vector Indexing Policy has an invalid Shard Path: %s. want one that begins with /",
			v.ShardKey[0])
	}
	for _, number := range []struct {
		name       string
		value      *int
		least, max int
	}{
		{"QuantizationByteSize", v.Bytes, 1, min(policy.Embeddings[at].Dimensions, maxQuantized)},
		{"IndexingSearchListSize", v.SearchList, leastSearchList, maxSearchList},
	} {
		if n := number.value; n != nil && (*n < number.least || *n > number.max) {
			return wire.BadRequest("The Vector Indexing Policy parameter %s value :: %d is out of range. The allowed range "+
				"is between %d and %d.", number.name, *n, number.least, number.max)
		}
	}
	return nil
}

// check refuses an index of geometries without a path or without known types.
func (s *spatialIndex) check(i int) error {
	if !strings.HasPrefix(s.Path, "/") {
		return wire.BadRequest("indexingPolicy.spatialIndexes[%d].path is %q: want one that begins with /", i, s.Path)
	}
	for _, name := range s.Types {
		if !namesOne(spatialTypes, name) {
			return wire.BadRequest("indexingPolicy.spatialIndexes[%d].types has %q: want some of %s", i, name,
				strings.Join(spatialTypes, ", "))
		}
	}
	if len(s.Types) == 0 {
		return wire.BadRequest("indexingPolicy.spatialIndexes[%d].types is missing or empty: want some of %s", i,
			strings.Join(spatialTypes, ", "))
	}
	return nil
}

// search decodes the policies of a container, which were checked when they were received.
func (p properties) search() (vectors vectorPolicy, indexes searchIndexes) {
	_ = json.Unmarshal(p["vectorEmbeddingPolicy"], &vectors)
	_ = json.Unmarshal(p["indexingPolicy"], &indexes)
	return vectors, indexes
}

// keepsVectors refuses a change to a vector policy or index of a container. New paths may be added.
func (p properties) keepsVectors(old properties) error {
	was, wasIndexed := old.search()
	is, isIndexed := p.search()
	for _, e := range was.Embeddings {
		if !slices.Contains(is.Embeddings, e) {
			return wire.BadRequest("Paths in existing embedding policy cannot be modified in Collection Replace. "+
				"vectorEmbeddingPolicy must keep %s", wire.Encode(e))
		}
	}
	for _, v := range isIndexed.Vectors {
		at := slices.IndexFunc(wasIndexed.Vectors, func(o vectorIndex) bool { return o.Path == v.Path })
		if at >= 0 && string(wire.Encode(v)) != string(wire.Encode(wasIndexed.Vectors[at])) {
			return wire.BadRequest("Paths in existing vector indexing policy cannot be modified in Collection Replace. "+
				"vectorIndexes must keep %s", wire.Encode(wasIndexed.Vectors[at]))
		}
	}
	return nil
}

// distances returns the distance functions of a container's vectors, by path.
func (p properties) distances() map[string]string {
	vectors, _ := p.search()
	byPath := make(map[string]string, len(vectors.Embeddings))
	for _, e := range vectors.Embeddings {
		byPath[e.Path] = strings.ToLower(e.Distance)
	}
	return byPath
}
