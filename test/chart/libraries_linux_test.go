package chart

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/listproxy/listproxy/test/harness/poll"
)

// library is a client in another language.
type library struct {
	program string
	ask     []string // prints how many pods there are
	// kubeconfig: it takes the pod's own token from a kubeconfig.
	kubeconfig bool
	line       *regexp.Regexp // what listproxy's log says when it had a list from memory
}

// libraries are Debian's python3-kubernetes and, from npm, @kubernetes/client-node, if LISTPROXY_TEST_LIBRARIES
// is a folder with the latter in node_modules. The test must then be root, to mount them into the pod.
func libraries() []library {
	if os.Getenv("LISTPROXY_TEST_LIBRARIES") == "" {
		return nil
	}
	return []library{
		{
			program: "/usr/bin/python3", kubeconfig: true, line: regexp.MustCompile(`"userAgent":"OpenAPI-Generator/[^\n]*; hit`),
			ask: []string{"-c", `
from kubernetes import client, config
config.load_config()
print(len(client.CoreV1Api().list_namespaced_pod("` + team + `", resource_version="0").items), "pods")`},
		},
		{
			program: "/usr/bin/node", line: regexp.MustCompile(`"userAgent":"node[^\n]*; hit`),
			ask: []string{"--input-type=module", "-e", `
import { KubeConfig, CoreV1Api } from '@kubernetes/client-node';
const config = new KubeConfig();
config.loadFromDefault();
const list = await config.makeApiClient(CoreV1Api).listNamespacedPod({ namespace: '` + team + `', resourceVersion: '0' });
console.log(list.items.length, 'pods');`},
		},
	}
}

// checkLibraries: they have lists from memory in the pods of docs/clients.md, and past listproxy too.
func (r *release) checkLibraries(t *testing.T, listproxy *container) {
	t.Helper()
	for _, lib := range libraries() {
		ways := []string{"projected:"}
		if lib.kubeconfig && listproxy != nil { // it does not know tls-server-name
			ways = append(ways, "KUBECONFIG")
		}
		for _, way := range ways {
			pod := r.c.create(t, team, nil, r.documented(t, way, lib.ask...))
			before := 0
			if listproxy != nil {
				before = len(lib.line.FindAllString(listproxy.log.String(), -1))
			}
			if printed := r.c.runToEnd(t, pod, lib.program); !strings.HasSuffix(printed, " pods\n") || strings.HasPrefix(printed, "0") {
				t.Errorf("%s prints %q", lib.program, printed)
			}
			if listproxy != nil {
				poll.Until(t, patience, lib.program+" has a list from memory", func() bool {
					return len(lib.line.FindAllString(listproxy.log.String(), -1)) > before
				})
			}
		}
	}
}

// withLibraries makes a command see /usr and the modules of Node.js, too, in mounts of its own.
func withLibraries(cmd *exec.Cmd) {
	is := cmd.SysProcAttr
	args := []string{
		"sh", "-ec", `
mkdir "$0/usr" "$0/node_modules"
ln -s usr/lib usr/lib64 "$0"
mount --bind /usr "$0/usr"
mount --bind "$1" "$0/node_modules"
shift
exec chroot "$@"`, is.Chroot, os.Getenv("LISTPROXY_TEST_LIBRARIES") + "/node_modules",
		fmt.Sprintf("--userspec=%d:%d", is.Credential.Uid, is.Credential.Gid), is.Chroot,
	}
	cmd.Path, cmd.Args = "/bin/sh", append(append(args, cmd.Path), cmd.Args[1:]...)
	cmd.Env = append(cmd.Env, "PATH="+os.Getenv("PATH"), "PYTHONHOME=/usr")
	is.Chroot, is.Credential, is.Unshareflags = "", nil, syscall.CLONE_NEWNS
}
