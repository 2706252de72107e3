package ask

import (
	"net/url"
	"strconv"
)

// Representations of a list, as Accept has them; JSON is that of everything else, too.
const (
	JSON     = "application/json"
	Protobuf = "application/vnd.kubernetes.protobuf"
	Metadata = JSON + ";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
)

// AnyVersion is the query for a list of any state. Queries here are in canonical form, which is the
// one that listproxy answers.
const AnyVersion = "resourceVersion=0"

// StreamingList is the query for a list of the newest state as a watch that goes on, as informers
// begin.
const StreamingList = "allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan&sendInitialEvents=true&watch=true"

// NotOlderThan is the query for a list at a revision, or of a newer state.
func NotOlderThan(revision uint64) string { return resourceVersion(revision, "NotOlderThan") }

// Exactly is the query for a list at a revision.
func Exactly(revision uint64) string { return resourceVersion(revision, "Exact") }

// FirstPage is the query for the first page of what another one asks for.
func FirstPage(limit int, query string) string { return "limit=" + strconv.Itoa(limit) + "&" + query }

// NextPage is the query for the page behind one that gave the token.
func NextPage(limit int, token string) string {
	return "continue=" + url.QueryEscape(token) + "&limit=" + strconv.Itoa(limit)
}

func resourceVersion(revision uint64, match string) string {
	return "resourceVersion=" + strconv.FormatUint(revision, 10) + "&resourceVersionMatch=" + match
}
