package watches

import (
	"strings"

	"github.com/listproxy/listproxy/test/differential"
	"github.com/listproxy/listproxy/test/differential/cluster"
	"github.com/listproxy/listproxy/test/oracle"
)

// start says where a watch begins: what is sent as resourceVersion.
type start string

// The starts.
const (
	unset   start = "unset"
	zero    start = "0"
	within  start = "within"  // some recent revision
	future  start = "future"  // a revision that comes soon
	distant start = "distant" // one that does not come
	old     start = "old"     // 1
	zeros   start = "00"      // is 0, but nothing is defaulted
)

// starts are these, as often as they are asked for.
var starts = []start{unset, unset, zero, zero, zero, within, within, within, within, within, future, distant, old, zeros}

// choice is of a parameter that may be left out.
type choice string

const (
	absent choice = "-"
	yes    choice = "true"
	no     choice = "false"
)

const (
	jsonType     = "application/json"
	protobufType = "application/vnd.kubernetes.protobuf"
)

// accepts are the Accept headers of each representation. The first is the plainest.
var accepts = map[differential.Representation][]string{
	differential.JSON: {
		jsonType, "", "*/*", "application/json, */*", "application/json;stream=watch", "application/json;q=0.5", "application/json , application/yaml",
	},
	differential.Protobuf: {
		protobufType, protobufType + "," + jsonType, protobufType + ";stream=watch," + jsonType, protobufType + ", " + jsonType + ";q=0.9",
	},
	differential.MetadataJSON: {
		jsonType + ";as=PartialObjectMetadata;g=meta.k8s.io;v=v1", jsonType + ";as=PartialObjectMetadata;v=v1;g=meta.k8s.io," + jsonType,
	},
	differential.MetadataProtobuf: {
		protobufType + ";as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
		protobufType + ";as=PartialObjectMetadata;g=meta.k8s.io;v=v1," + jsonType + ";as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
		// client-go's metadata client.
		protobufType + ";as=PartialObjectMetadata;g=meta.k8s.io;v=v1," + jsonType + ";as=PartialObjectMetadata;g=meta.k8s.io;v=v1," + jsonType,
	},
}

var representations = []differential.Representation{
	differential.JSON, differential.Protobuf, differential.MetadataJSON, differential.MetadataProtobuf,
}

func metadata(r differential.Representation) bool {
	return r == differential.MetadataJSON || r == differential.MetadataProtobuf
}

// form is a request for a watch.
type form struct {
	differential.Question
	admin cluster.User

	start          start
	initial        choice // sendInitialEvents
	bookmarks      bool   // allowWatchBookmarks
	representation differential.Representation
	selector       differential.Selector
	// seconds after which it is to end, while it is being read; 0: it is not.
	seconds int
	// odd: it may be refused, or ends at once. Only the two sides are compared.
	odd bool
	// unusual: it is written as no client writes it.
	unusual bool
	// answerable: listproxy is to answer from memory.
	answerable bool
}

// told is the representation in which the objects of the events come.
func (f form) told() differential.Representation {
	if f.representation == differential.Protobuf && f.Resource.Group == cluster.Group {
		return differential.JSON // the second clause of the Accept header
	}
	return f.representation
}

// begins says what a watch tells first, and whether a bookmark ends that; watchList is whether the
// API server has streaming lists.
func (f form) begins(watchList bool) (_ oracle.Beginning, ending bool) {
	named := f.start != unset && f.start != zero && f.start != zeros
	switch {
	case f.initial == yes:
		return oracle.FromState, f.bookmarks
	case named:
		return oracle.FromRevision, false
	case f.initial == no:
		return oracle.FromNow, false
	}
	// What is not said is taken for true.
	return oracle.FromState, f.bookmarks && watchList && f.start != zeros
}

// memory reports whether listproxy is to answer from memory.
func (f form) memory(watchList bool) bool {
	begins, ending := f.begins(watchList)
	switch {
	case f.odd, f.unusual, f.start == old, f.start == distant, f.start == future, f.start == zeros:
		return false
	case begins == oracle.FromNow, begins == oracle.FromState && !ending:
		return false
	case f.start == unset: // only behind a proof of the newest state, which may be dearer than the watch
		return false
	case strings.TrimSpace(f.Query.Get("labelSelector")) == "" && f.Query.Has("labelSelector"):
		return false
	}
	q := f.Question
	q.Representation = f.told()
	q.Semantics = differential.Any
	return q.Memory()
}
