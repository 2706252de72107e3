package attacks

// watchAttacks ask to follow what one may not list, or as nobody would. All end after a second.
func watchAttacks() []attack {
	const (
		watch     = "&watch=true&timeoutSeconds=1"
		streaming = watch + "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
		made      = "?resourceVersion=99999999" + watch
	)
	metadata := []string{"Accept: application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"}
	protobuf := []string{"Accept: application/vnd.kubernetes.protobuf;stream=watch"}
	return append(by(podReaders,
		attack{name: "all", target: pods + watch, hit: []string{admin}},
		attack{name: "all, as a streaming list", target: pods + streaming, hit: []string{admin}},
		attack{name: "all, in protobuf", target: pods + watch, header: protobuf},
		attack{name: "all, metadata only", target: pods + watch, header: metadata},
		attack{name: "one namespace", target: podsOfA + watch, hit: podReaders},
		attack{name: "one namespace, as a streaming list", target: podsOfA + streaming, hit: podReaders},
		attack{name: "another namespace", target: podsOfB + watch, hit: []string{admin}},
		attack{name: "another namespace by a field", target: pods + watch + "&fieldSelector=metadata.namespace%3Dteam-a", hit: []string{admin}},
		attack{name: "another namespace by two", target: podsOfA + watch + "&fieldSelector=metadata.namespace%3Dteam-b", hit: podReaders},
		attack{name: "a label that only others have", target: pods + watch + "&labelSelector=of%3Dteam-b", hit: []string{admin}},
		attack{name: "a revision of the future", target: "/api/v1/pods" + made},
		attack{name: "a revision of the future, of one namespace", target: "/api/v1/namespaces/team-a/pods" + made},
		attack{name: "a revision of the past", target: "/api/v1/pods?resourceVersion=1" + watch},
		attack{name: "a revision that is none", target: "/api/v1/namespaces/team-a/pods?resourceVersion=x" + watch},
		attack{name: "a continuation", target: podsOfA + watch + "&continue=x"},
		attack{name: "a limit", target: podsOfA + watch + "&limit=1", hit: podReaders},
		attack{name: "exact", target: podsOfA + watch + "&resourceVersionMatch=Exact"},
		attack{name: "initial events without a match", target: podsOfA + watch + "&sendInitialEvents=true"},
		attack{name: "shards", target: podsOfA + watch + "&shardSelector=x"},
		attack{name: "with a body", target: podsOfA + watch, body: "x"},
		attack{name: "by HEAD", method: "HEAD", target: podsOfA + watch},
		attack{name: "as somebody else", target: pods + watch, header: []string{"Impersonate-User: admin"}},
	), by([]string{named},
		attack{name: "an object by its name", target: configMapsOfA + watch + "&fieldSelector=metadata.name%3Dopen"},
		attack{name: "another object by its name", target: configMapsOfA + watch + "&fieldSelector=metadata.name%3Dshut"},
		attack{name: "the object's neighbours", target: configMapsOfA + watch},
		attack{name: "all but the object", target: configMapsOfA + watch + "&fieldSelector=metadata.name!%3Dopen"},
	)...)
}
