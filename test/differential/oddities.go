package differential

import (
	"strconv"
	"strings"
)

// oddity changes a question into one that listproxy is to forward, or that is odd but plain.
func (g *Generator) oddity(q *Question) {
	switch g.rng.IntN(5) {
	case 0:
		g.plainOddity(q)
	case 1:
		g.selector(q)
		q.Answerable = false
	case 2:
		g.form(q)
		q.Answerable = false
	case 3:
		g.parameter(q)
		q.Answerable = false
	case 4:
		g.spelling(q)
		q.Answerable = false
	}
}

// plainOddity adds what a list may carry and does not change it.
func (g *Generator) plainOddity(q *Question) {
	odd := [][2]string{
		{"timeoutSeconds", "7"}, {"timeout", "30s"}, {"allowWatchBookmarks", "true"}, {"labelSelector", ""}, {"fieldSelector", ""}, {"continue", ""},
	}[g.rng.IntN(6)]
	q.Query.Set(odd[0], odd[1])
}

func (g *Generator) selector(q *Question) {
	labels := []string{"tier=web", "tier in (web,db)", "!tier", "turn!=3,tier", "tier=", "tier in (", "=x", "a b"}
	fields := append([]string{
		"metadata.name=a", "metadata.name=churn-a", "metadata.namespace=team-a", "metadata.name!=a", "spec.unknown=x", "bad",
	}, q.Resource.Fields...)
	if g.one(2) {
		q.Query.Set("labelSelector", labels[g.rng.IntN(len(labels))])
		return
	}
	field := fields[g.rng.IntN(len(fields))]
	q.Query.Set("fieldSelector", field)
	// A single key is read as it is now, whatever revision is asked for.
	q.Unsteady = strings.HasPrefix(field, "metadata.name=")
}

// form asks for another form of the answer.
func (g *Generator) form(q *Question) {
	switch pick := g.rng.IntN(12); {
	case pick < 2:
		q.Header.Set("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json")
		q.Clocked = true
	case pick < 4:
		q.Header.Set("Accept", "application/vnd.kubernetes.protobuf,application/json")
	case pick < 5:
		q.Header.Set("Accept", "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io")
	case pick < 6:
		q.Header.Set("Accept", "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io")
	case pick < 7 && !q.Semantics.moving():
		q.Header.Set("Accept", []string{"application/yaml", "application/cbor"}[g.rng.IntN(2)])
	case pick < 8:
		accepts := Accepts()
		q.Header.Set("Accept", accepts[g.rng.IntN(len(accepts))])
	case pick < 9:
		q.Header.Set("User-Agent", []string{"curl/8.5.0", "Wget/1.21", "Mozilla/5.0 (X11)"}[g.rng.IntN(3)])
	default:
		q.Query.Set("pretty", []string{"true", "false", "1", ""}[g.rng.IntN(4)])
	}
}

// parameter adds what the API server refuses, ignores, or reads in its own way.
func (g *Generator) parameter(q *Question) {
	odd := [][2]string{
		{"limit", "abc"},
		{"limit", "-1"},
		{"limit", ""},
		{"limit", "0"},
		{"limit", "+5"},
		{"limit", "9223372036854775808"},
		{"resourceVersionMatch", "Bogus"},
		{"resourceVersionMatch", "exact"},
		{"resourceVersion", "abc"},
		{"resourceVersion", "-1"},
		{"resourceVersion", "007"},
		{"resourceVersion", "18446744073709551615"},
		{"sendInitialEvents", "true"},
		{"sendInitialEvents", "x"},
		{"watch", "false"},
		{"watch", "0"},
		{"timeout", "abc"},
		{"timeoutSeconds", "abc"},
		{"allowWatchBookmarks", "maybe"},
		{"unknown", "1"},
		{"includeUninitialized", "true"},
		{"shardSelector", "x"},
		{"continue", "AAAA"},
		{"fieldManager", "x"},
	}[g.rng.IntN(24)]
	if odd[0] == "resourceVersion" && q.Semantics != Exact && q.Semantics != Legacy {
		// What the revision is would no longer be known here.
		odd = [2]string{"unknown", "2"}
	}
	q.Query.Set(odd[0], odd[1])
	if odd[0] == "limit" && q.Semantics == Legacy {
		// Without a limit it would be a NotOlderThan.
		q.Query.Set("resourceVersionMatch", "Exact")
	}
	if odd[0] == "continue" {
		q.Query.Del("resourceVersionMatch")
	}
}

// spelling says the same in another way.
func (g *Generator) spelling(q *Question) {
	path := q.Resource.Path(q.Namespace)
	switch g.rng.IntN(9) {
	case 0:
		q.Path = path + "/"
	case 1:
		q.Path = "/" + path
	case 2:
		q.Path = path[:len(path)-1] + "%" + strconv.FormatInt(int64(path[len(path)-1]), 16)
	case 3:
		q.Path = path + "/../" + q.Resource.Resource
	case 4:
		q.Path = path + "x"
	case 5:
		if q.Semantics == Any {
			q.RawQuery = "unknown=2&unknown=3"
			break
		}
		q.RawQuery = "limit=2&limit=3"
		q.Query.Del("limit")
		if q.Semantics == NotOlderThan {
			q.Query.Set("resourceVersionMatch", "NotOlderThan")
		}
	case 6:
		q.RawQuery = "a;b=1"
	case 7:
		q.RawQuery = "x=%zz"
	case 8:
		q.RawQuery = "&&"
	}
}

// Accepts returns Accept headers that are read in more ways than one: the API server's router and
// its negotiation both look at them.
func Accepts() []string {
	return []string{
		"", " ", ";;", ",", "text/html", "application/*", "application/*, application/json", "text/html, application/json",
		"application/JSON", " application/json ", "application/json;q=0", "application/json; q=1", "application/json;;",
		"*/*;q=0.1", "*/*, text/html", "*", "*/json", "application/json,application/yaml;q=0.9", "text/html;q=0.9, */*;q=0.1",
		"application/json;charset=utf-8", "application/json;pretty=1", "application/json;pretty=0", "application/json;stream=watch",
		"application/json;as=Nothing;v=v1;g=x", "application/json;as=PartialObjectMetadataList;v=v1beta1;g=meta.k8s.io",
		"application/apply-patch+yaml", "application/json\t", "application/json/x", "application/json;profile=x", "application/json;export=1",
		"application/yaml;q=0.1, application/json;q=0.2",
	}
}
