package differential

import "strconv"

// oddity makes a question odd: one that listproxy should forward, or one with harmless parameters.
func (g *generator) oddity(q *question) {
	odd := []func(*question){g.badSelector, g.oddForm, g.parameter, g.spelling}
	if g.one(len(odd) + 1) {
		g.plainOddity(q)
		return
	}
	q.Odd = true
	pick(g, odd...)(q)
}

// plainOddity adds a parameter that does not change a list.
func (g *generator) plainOddity(q *question) {
	odd := pick(
		g, [2]string{"timeoutSeconds", "7"}, [2]string{"timeout", "30s"}, [2]string{"allowWatchBookmarks", "true"},
		[2]string{"labelSelector", ""}, [2]string{"fieldSelector", ""}, [2]string{"continue", ""},
	)
	if q.Query.Has(odd[0]) {
		return
	}
	q.Query.Set(odd[0], odd[1])
}

// badSelector adds a selector that kube-apiserver refuses, or reads in an unusual way.
func (g *generator) badSelector(q *question) {
	if g.one(2) {
		q.Query.Set("labelSelector", pick(g, badSelectors...))
		return
	}
	q.Query.Set("fieldSelector", pick(g, badFields...))
}

// oddForm asks for a representation that is always forwarded, or for indentation in an unusual way.
func (g *generator) oddForm(q *question) {
	accept := func(all ...string) {
		q.Header.Set("Accept", pick(g, all...))
		q.Representation = oddForm
	}
	n := g.rng.IntN(12)
	switch {
	case n < 3:
		accept(
			"application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json",
			"application/json;as=Table;v=v1;g=meta.k8s.io",
		)
		q.Clocked = true
	case n < 5:
		accept("application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io,application/json")
		q.Clocked = true
	case n < 7 && !q.effective().changesWithTime():
		accept("application/yaml", "application/cbor", "application/cbor,application/json", "application/yaml"+asMetadata)
	case n < 9:
		accept(oddAccepts()...)
	case n < 10:
		q.Header.Set("User-Agent", pick(g, "curl", "Wget/1.21", "Mozilla/5.0 (X11)", "Mozilla/4.0", "Curl/8", ""))
	default:
		q.Query.Set("pretty", pick(g, "true", "false", "1", "", "yes", "0", "T", " 1", "tRUE"))
	}
}

// parameter adds a parameter that kube-apiserver refuses, ignores, or reads in an unusual way.
func (g *generator) parameter(q *question) {
	odd := pick(g, [][2]string{
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
		{"shardSelector", "shardRange(object.metadata.uid, '0x0000000000000000', '0x8000000000000000')"}, // ignored by a kube-apiserver without shards
		{"continue", "AAAA"},
		{"fieldManager", "x"},
	}...)
	if odd[0] == "resourceVersion" && q.Semantics != exact && q.Semantics != legacyExact {
		// The comparison would no longer know the revision.
		odd = [2]string{"unknown", "2"}
	}
	q.Query.Set(odd[0], odd[1])
	if odd[0] == "limit" && q.Semantics == legacyExact {
		// Without a limit it would be a NotOlderThan.
		q.Query.Set("resourceVersionMatch", "Exact")
		q.Semantics = exact
	}
	if odd[0] == "continue" {
		q.Query.Del("resourceVersionMatch")
	}
}

// spelling writes the path or the query in an unusual way, some of which mean the same.
func (g *generator) spelling(q *question) {
	path := q.Resource.Path(q.Namespace)
	switch g.rng.IntN(10) {
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
		if q.Semantics == anyRevision {
			q.RawQuery = "unknown=2&unknown=3"
			break
		}
		q.RawQuery = "limit=2&limit=3"
		q.Query.Del("limit")
		if q.Semantics == notOlderThan {
			q.Query.Set("resourceVersionMatch", "NotOlderThan")
		}
	case 6:
		q.RawQuery = "a;b=1"
	case 7:
		q.RawQuery = "x=%zz"
	case 8:
		q.RawQuery = "&&"
	case 9:
		q.Query.Del("pretty")
		q.RawQuery = pick(g, "pr%65tty=1", "pretty=1&pretty=0", "pr%65tty=1&pretty=0", "Pretty=1")
	}
}

// oddAccepts returns Accept headers that may be read in more ways than one: both the router of kube-apiserver and its content
// negotiation read them. None begins or ends with a space or a tab, which HTTP/2 forbids (RFC 9113, 8.2.1) and HTTP/1.1, by
// which listproxy forwards the first request of a caller, cuts off.
func oddAccepts() []string {
	return []string{
		// No media type, or one that kube-apiserver does not write.
		"", ";;", ",", "*", "*/json", "text/html", "application/JSON", "application/json/x", "application/apply-patch+yaml",
		// Wildcards and several clauses.
		"application/*", "application/*, application/json", "text/html, application/json", "application/json , text/html",
		"*/*;q=0.1", "*/*, text/html", "application/json,application/yaml;q=0.9", "text/html;q=0.9, */*;q=0.1",
		"application/yaml;q=0.1, application/json;q=0.2",
		// Parameters of JSON.
		"application/json;q=0", "application/json; q=1", "application/json\t;q=1", "application/json;;",
		"application/json;charset=utf-8", "application/json;pretty=1", "application/json;pretty=0", "application/json;stream=watch",
		"application/json;profile=x", "application/json;export=1",
		// Protobuf.
		asProtobuf, asProtobuf + ";q=0.1, application/json", asProtobuf + ";pretty=1,application/json", asProtobuf + ";x=y",
		"text/html, " + asProtobuf, asProtobuf + ", */*", "*/*, " + asProtobuf, "application/*;q=0.2, " + asProtobuf + ";q=0.1",
		"APPLICATION/VND.KUBERNETES.PROTOBUF", asProtobuf + ";stream=watch", asProtobuf + ";charset=utf-8,application/json",
		// Metadata, with more parameters or in another clause.
		"text/html, " + asJSON + asMetadata, asJSON + asMetadata + ";pretty=1", asJSON + asMetadata + ";x=y",
		asJSON + asMetadata + ";q=0.5,application/json", "*/*" + asMetadata, "application/*" + asMetadata,
		// Metadata of another group, version or kind, or with one of these missing.
		"application/json;as=Nothing;v=v1;g=x", "application/json;as=", "application/json;g=meta.k8s.io;v=v1",
		"application/json;as=PartialObjectMetadataList;v=v1beta1;g=meta.k8s.io",
		asJSON + ";as=PartialObjectMetadataList;g=meta.k8s.io", asJSON + ";as=PartialObjectMetadataList",
		asJSON + ";as=PartialObjectMetadata;v=v1;g=meta.k8s.io", asJSON + ";as=PartialObjectMetadata;v=v1;g=meta.k8s.io,application/json",
		asProtobuf + ";as=PartialObjectMetadataList;v=v1beta1;g=meta.k8s.io," + asJSON + asMetadata,
		asJSON + ";as=PartialObjectMetadataList;v=v2;g=meta.k8s.io," + asProtobuf,
		asJSON + ";as=PartialObjectMetadataList;g=other;v=v1," + asJSON, asJSON + ";as=partialobjectmetadatalist;g=meta.k8s.io;v=v1",
	}
}
