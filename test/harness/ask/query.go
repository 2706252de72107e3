package ask

import (
	"net/url"
	"strconv"
)

// Accept headers of a list.
const (
	JSON     = "application/json"
	Protobuf = "application/vnd.kubernetes.protobuf"
	Metadata = JSON + ";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
)

// AnyVersion is the query for a list at any revision. Queries here have their parameters in canonical order, which listproxy
// answers.
const AnyVersion = "resourceVersion=0"

// StreamingList is the query for a streaming list of the newest state, with which informers begin.
const StreamingList = "allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan&sendInitialEvents=true&watch=true"

// NotOlderThan returns the query for a list at a revision or later.
func NotOlderThan(revision uint64) string { return resourceVersion(revision, "NotOlderThan") }

// Exactly returns the query for a list at a revision.
func Exactly(revision uint64) string { return resourceVersion(revision, "Exact") }

// FirstPage returns the query for the first page of the list of another query.
func FirstPage(limit int, query string) string { return "limit=" + strconv.Itoa(limit) + "&" + query }

// NextPage returns the query for the page of a token.
func NextPage(limit int, token string) string {
	return "continue=" + url.QueryEscape(token) + "&limit=" + strconv.Itoa(limit)
}

func resourceVersion(revision uint64, match string) string {
	return "resourceVersion=" + strconv.FormatUint(revision, 10) + "&resourceVersionMatch=" + match
}
