package main

// removed has the flags and commands that earlier versions had, written as after "listproxy", and
// what to do instead. A command line with one of them is refused: what it wanted would silently not
// be so.
func removed() map[string]string {
	gone := map[string]string{
		"policy explain":            "listproxy try PATH, with the kubeconfig of a client, asks the running listproxy and says why a list is forwarded",
		"--upstream":                "listproxy uses the one address in --kubeconfig: name a load balancer, a virtual IP or a Service there",
		"status --output":           "curl 'http://ADDRESS/statusz?format=json', at its --admin-bind-address, gives the JSON",
		"--schema-quarantine":       "nothing: lists of a custom resource are forwarded for ten seconds after its definition has changed",
		"--fresh-wait":              "a list waits 100 ms for a revision that is not here yet, and is then forwarded: leave the flag out",
		"--eager-jitter":            "eager resources begin to load at once: leave the flag out",
		"--max-body-bytes":          "the API server says how long a request's body may be: leave the flag out",
		"--compression-cache-bytes": "compressed lists may take an eighth of --cache-bytes beside it: leave the flag out",
		"--consistent-wait":         "a list of the newest state waits 1.5 s for the proof, and is then forwarded: leave the flag out",
		"--max-connections": "there is one connection for each MiB of GOMEMLIMIT, from 256 to 20000, and listproxy sets that by " +
			"--cache-bytes if the environment does not",
		"--overload-wait": "a request waits 5 s for its turn: leave the flag out",
		"--stall-timeout": "a client that reads nothing of an answer is cut off after a minute: leave the flag out",
		"--admin-hosts": "ask the admin port by an IP address, localhost or a Service's name (NAME.NAMESPACE.svc), or let the " +
			"proxy before it send one of these as the host",
		"--debug-pprof":        "/debug/pprof/ is always there for who is on listproxy's machine or in its pod: kubectl port-forward",
		"--connect-plain-http": "--connect-port always has TLS: write https:// in proxy-url",
		"--cert-hosts": "the certificate that listproxy makes is also for the IP address in --bind-address; for other names give one in " +
			"--tls-cert-file",
		"--tls-cipher-suites": "Go chooses among the suites of TLS 1.2 that are secure; --tls-min-version VersionTLS13 leaves these out",
		"--upstream-settle":   "nothing is forwarded any more because API servers changed: leave the flag out",
	}
	for _, flag := range []string{"--audit-log-maxage", "--audit-log-compress"} {
		gone[flag] = "--audit-log-maxbackup says how many rotated files of the audit log are kept: leave the flag out"
	}
	for _, flag := range []string{"--connect-ca-file", "--connect-ca-key-file"} {
		gone[flag] = "--connect-port shows the certificate of --tls-cert-file inside tunnels too: put the API server's names into it " +
			"(docs/operate.md#two-ways-in)"
	}
	for _, of := range []string{
		"client-ca-file", "allowed-names", "username-headers", "uid-headers", "group-headers", "extra-headers-prefix",
	} {
		gone["--requestheader-"+of] = "listproxy believes no proxy in front of it: let callers use a token of their own or, " +
			"with --client-ca-file, a client certificate"
	}
	return gone
}
