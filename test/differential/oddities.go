package differential

import "strconv"

// makeOdd adds something unusual to a question. In one of five cases that is a parameter that changes nothing: listproxy must
// still answer from memory. In the others the question is marked as odd: listproxy may forward it.
func (g *generator) makeOdd(q *question) {
	changes := []func(*question){g.setUnusualSelector, g.setUnusualForm, g.setUnusualParameter, g.spellUnusually}
	if g.oneIn(len(changes) + 1) {
		g.addHarmlessParameter(q)
		return
	}
	q.Odd = true
	change := pick(g, changes...)
	change(q)
}

// parameter is a parameter of the query.
type parameter struct{ name, value string }

// addHarmlessParameter adds a parameter that does not change a list.
func (g *generator) addHarmlessParameter(q *question) {
	added := pick(g,
		parameter{"timeoutSeconds", "7"}, parameter{"timeout", "30s"}, parameter{"allowWatchBookmarks", "true"},
		parameter{"labelSelector", ""}, parameter{"fieldSelector", ""}, parameter{"continue", ""},
	)
	if !q.Query.Has(added.name) {
		q.Query.Set(added.name, added.value)
	}
}

// setUnusualSelector adds a selector that kube-apiserver refuses, or reads in an unusual way.
func (g *generator) setUnusualSelector(q *question) {
	if g.oneIn(2) {
		q.Query.Set("labelSelector", pick(g, refusedLabelSelectors...))
		return
	}
	q.Query.Set("fieldSelector", pick(g, unusualFieldSelectors...))
}

// setUnusualForm asks for a representation that is always forwarded, or for indentation in an unusual way. Tables and
// unusual indentation come most often.
func (g *generator) setUnusualForm(q *question) {
	accept := func(all ...string) {
		q.Header.Set("Accept", pick(g, all...))
		q.Representation = forwardedForm
	}
	// The comparison cannot read the revision of a list in YAML or CBOR, so such a list must be at a fixed revision.
	hasFixedRevision := !q.effectiveSemantics().changesWithTime()
	n := g.rng.IntN(12)
	switch { // the first case that applies; without a fixed revision, 5 and 6 are oddAccepts
	case n < 3:
		accept(
			"application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json",
			"application/json;as=Table;v=v1;g=meta.k8s.io",
		)
		q.HasAges = true
	case n < 5:
		accept("application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io,application/json")
		q.HasAges = true
	case n < 7 && hasFixedRevision:
		accept("application/yaml", "application/cbor", "application/cbor,application/json", "application/yaml"+asMetadata)
	case n < 9:
		accept(oddAccepts()...)
	case n < 10: // some of these User-Agents get indented JSON, others only look like those that do
		q.Header.Set("User-Agent", pick(g, "curl", "Wget/1.21", "Mozilla/5.0 (X11)", "Mozilla/4.0", "Curl/8", ""))
	default:
		q.Query.Set("pretty", pick(g, "true", "false", "1", "", "yes", "0", "T", " 1", "tRUE"))
	}
}

// setUnusualParameter sets a parameter that kube-apiserver refuses, ignores, or reads in an unusual way.
func (g *generator) setUnusualParameter(q *question) {
	unusual := pick(g, []parameter{
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
		// A kube-apiserver without shards ignores it.
		{"shardSelector", "shardRange(object.metadata.uid, '0x0000000000000000', '0x8000000000000000')"},
		{"continue", "AAAA"},
		{"fieldManager", "x"},
	}...)
	if unusual.name == "resourceVersion" && q.Semantics != exact && q.Semantics != legacyExact {
		// The comparison would not know which revision the answer must have.
		unusual = parameter{"unknown", "2"}
	}
	q.Query.Set(unusual.name, unusual.value)
	if unusual.name == "limit" && q.Semantics == legacyExact {
		// A legacyExact list is exact only because it has a limit, and a limit of 0 or "" is none. So the question says Exact.
		q.Query.Set("resourceVersionMatch", "Exact")
		q.Semantics = exact
	}
	if unusual.name == "continue" {
		q.Query.Del("resourceVersionMatch") // kube-apiserver would refuse both together, whatever the token
	}
}

// spellUnusually writes the path or the query in an unusual way, which may or may not mean the same.
func (g *generator) spellUnusually(q *question) {
	path := q.Resource.Path(q.Namespace)
	spellings := []func(){
		func() { q.Path = path + "/" },
		func() { q.Path = "/" + path },
		func() { // the last letter escaped
			q.Path = path[:len(path)-1] + "%" + strconv.FormatInt(int64(path[len(path)-1]), 16)
		},
		func() { q.Path = path + "/../" + q.Resource.Resource },
		func() { q.Path = path + "x" },
		func() { // a parameter twice: kube-apiserver reads the first
			if q.Semantics == anyRevision { // the comparison would not know the limit
				q.RawQuery = "unknown=2&unknown=3"
				return
			}
			q.RawQuery = "limit=2&limit=3"
			q.Query.Del("limit")
			if q.Semantics == notOlderThan {
				q.Query.Set("resourceVersionMatch", "NotOlderThan")
			}
		},
		// What package url does not accept or drops.
		func() { q.RawQuery = "a;b=1" },
		func() { q.RawQuery = "x=%zz" },
		func() { q.RawQuery = "&&" },
		func() { // pretty escaped, twice, and in another case
			q.Query.Del("pretty")
			q.RawQuery = pick(g, "pr%65tty=1", "pretty=1&pretty=0", "pr%65tty=1&pretty=0", "Pretty=1")
		},
	}
	spell := pick(g, spellings...)
	spell()
}

// oddAccepts returns Accept headers that may be read in more ways than one. Two parts of kube-apiserver read such a header: its
// router, and its content negotiation. None of these headers begins or ends with a space or a tab: HTTP/2 forbids that (RFC
// 9113, 8.2.1), and HTTP/1.1, over which listproxy forwards the first request of a caller, drops the space.
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
