package cluster

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"text/template"
	"time"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/controlplane/binaries"
	"github.com/listproxy/listproxy/test/harness/poll"
)

const (
	// patience is the longest wait for something that must come.
	patience = 5 * time.Minute
	// nodeIP is the address of the only node. The loopback interface has it: the cluster has no other interface.
	nodeIP = "192.0.2.1"
	// Image is the name of listproxy's image without the tag, which is the chart's version.
	Image = "ghcr.io/listproxy/listproxy"
	// serviceCIDR is the range of the addresses of Services, as in controlplane's arguments.
	serviceCIDR = "10.0.0.0/16"
	// dnsAddress is the address of CoreDNS, as in files/addons.yaml.
	dnsAddress = "10.0.0.10:53"
	// otlpPort is Jaeger's port for traces.
	otlpPort = "4317"
)

// files are templates of the programs' configuration files.
//
//go:embed files
var files embed.FS

// A Cluster is a Kubernetes with one node. It runs until this process ends.
type Cluster struct {
	*controlplane.ControlPlane
	// Chart is the path of listproxy's chart, packaged as for a release.
	Chart string

	bin    string // the folder of programs
	log    func(string)
	cancel context.CancelCauseFunc
}

// Start starts the cluster, in a process that [Enter] has started. When a program of the cluster ends, it calls cancel.
func Start(ctx context.Context, log func(string), cancel context.CancelCauseFunc) (c *Cluster, err error) {
	c = &Cluster{log: log, cancel: cancel}
	if err := isolate(ctx); err != nil {
		return nil, err
	}
	if c.bin, err = binDir(); err != nil {
		return nil, err
	}
	if c.Chart, err = releasedFile("*.tgz"); err != nil {
		return nil, err
	}
	if err := c.configure(); err != nil {
		return nil, err
	}
	c.ControlPlane, err = controlplane.Start(ctx, controlplane.Options{
		ServiceAccounts: true, Log: log,
		APIServerArgs: []string{
			"--bind-address=0.0.0.0", "--advertise-address=" + nodeIP, "--endpoint-reconciler-type=lease", "--authorization-mode=Node",
			"--kubelet-preferred-address-types=InternalIP", "--tracing-config-file=" + dir + "/tracing.yaml",
		},
	})
	if err != nil {
		return nil, err
	}
	return c, c.startNode(ctx)
}

// releasedFile returns the path of the only file of the release with a name of this pattern.
func releasedFile(pattern string) (string, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "dist", pattern))
	if err != nil {
		return "", err
	}
	if len(paths) != 1 {
		return "", fmt.Errorf("the release has %d files %s, want one: %q", len(paths), pattern, paths)
	}
	return paths[0], nil
}

// configure writes the programs' configuration files to dir.
func (c *Cluster) configure() error {
	all, err := template.ParseFS(files, "files/*")
	if err != nil {
		return err
	}
	for _, t := range all.Templates() {
		out, err := os.OpenFile(filepath.Join(dir, t.Name()), os.O_CREATE|os.O_WRONLY, 0o600) // #nosec G304 -- of this package
		if err == nil {
			err = errors.Join(t.Execute(out, map[string]string{"Dir": dir, "Bin": c.bin, "Group": cgroupName}), out.Close())
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// isolate sets up the Linux namespaces of this process, so that the cluster changes nothing outside of them.
func isolate(ctx context.Context) error {
	for _, step := range []func() error{mountFresh, overlayVarLib, copySettings, makeCgroups} {
		if err := step(); err != nil {
			return err
		}
	}
	return setUpNetwork(ctx)
}

// mountFresh mounts new file systems, which only processes in these namespaces see.
func mountFresh() error {
	for target, filesystem := range map[string]string{"/proc": "proc", "/run": "tmpfs", "/var/log": "tmpfs"} {
		if err := syscall.Mount(filesystem, target, filesystem, 0, ""); err != nil {
			return fmt.Errorf("mount %s: %w", target, err)
		}
	}
	return nil
}

// overlayVarLib mounts an overlay over /var/lib: what programs write there is gone when the namespaces end. dir is below
// /var/lib, but its files must be visible outside. So overlayVarLib keeps dir at another path first, and then mounts it over
// the overlay.
func overlayVarLib() error {
	const dirMount = "/run/dir" // keeps dir until the overlay is there
	for _, folder := range []string{dirMount, "/run/upper", "/run/work"} {
		if err := os.Mkdir(folder, 0o755); err != nil { // #nosec G301 -- as /var/lib is
			return err
		}
	}
	for _, mount := range []struct {
		source, target, filesystem string
		flags                      uintptr
		data                       string
	}{
		{source: dir, target: dirMount, flags: syscall.MS_BIND},
		{source: "overlay", target: "/var/lib", filesystem: "overlay", data: "lowerdir=/var/lib,upperdir=/run/upper,workdir=/run/work"},
		{source: dirMount, target: dir, flags: syscall.MS_BIND},
	} {
		if err := syscall.Mount(mount.source, mount.target, mount.filesystem, mount.flags, mount.data); err != nil {
			return fmt.Errorf("a copy of /var/lib: %w", err)
		}
	}
	return nil
}

// copySettings mounts copies over the kernel settings that kubelet writes. The settings themselves are those of the whole
// machine.
func copySettings() error {
	for _, setting := range []string{
		"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops", "kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes",
	} {
		path, copied := "/proc/sys/"+setting, filepath.Join("/run", strings.ReplaceAll(setting, "/", "."))
		value, err := os.ReadFile(path) // #nosec G304 -- of the kernel
		if err == nil {
			err = os.WriteFile(copied, value, 0o600) // #nosec G703 -- as above
		}
		if err == nil {
			err = syscall.Mount(copied, path, "", syscall.MS_BIND, "")
		}
		if err != nil {
			return fmt.Errorf("a copy of %s: %w", path, err)
		}
	}
	return nil
}

// makeCgroups makes the control groups of pods.
func makeCgroups() error {
	for _, path := range cgroups() {
		// Version 2 of control groups needs controllers to be enabled. Version 1 has no file for it, so that errors do not
		// count.
		for _, controller := range []string{"cpuset", "cpu", "memory", "pids", "hugetlb"} {
			_ = os.WriteFile(filepath.Join(filepath.Dir(path), "cgroup.subtree_control"), []byte("+"+controller), 0o600)
		}
		if err := os.Mkdir(path, 0o700); err != nil {
			return err
		}
	}
	return nil
}

// setUpNetwork gives the loopback interface the node's address and the route to Services.
func setUpNetwork(ctx context.Context) error {
	for _, args := range []string{"link set lo up", "address add " + nodeIP + "/32 dev lo", "route add " + serviceCIDR + " dev lo src " + nodeIP} {
		if out, err := exec.CommandContext(ctx, "ip", strings.Fields(args)...).CombinedOutput(); err != nil { // #nosec G204 -- of this package
			return fmt.Errorf("ip %s: %w: %s", args, err, out)
		}
	}
	return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o600) // of this network namespace only
}

// startNode starts all programs other than the control plane, and waits until the node and CoreDNS are ready.
func (c *Cluster) startNode(ctx context.Context) error {
	if err := c.run("containerd", "--config="+dir+"/containerd.toml"); err != nil {
		return err
	}
	if err := c.importImages(ctx); err != nil {
		return err
	}
	if err := c.startComponents(); err != nil {
		return err
	}
	for _, args := range []string{
		"apply -f " + dir + "/addons.yaml", "wait --for=create node/node --timeout=5m", "wait --for=condition=Ready node/node --timeout=5m",
		"rollout status deployment/coredns -n kube-system --timeout=5m",
	} {
		if _, err := c.Kubectl(ctx, "", strings.Fields(args)...); err != nil {
			return err
		}
	}
	// kube-apiserver cannot resolve names of Services, so it sends its traces to this port.
	traces, err := net.Listen("tcp", "127.0.0.1:"+otlpPort)
	if err != nil {
		return err
	}
	go forward(traces, "jaeger.tracing:"+otlpPort)
	return nil
}

// startComponents starts the programs of Kubernetes besides etcd and kube-apiserver. Each has a kubeconfig with a certificate.
func (c *Cluster) startComponents() error {
	for _, p := range []struct {
		name   string
		user   string
		groups []string
		args   []string
		// configHasKubeconfig reports that the program's configuration file names its kubeconfig. Other programs have a flag
		// for it.
		configHasKubeconfig bool
	}{
		{name: "kube-controller-manager", user: "system:kube-controller-manager", args: []string{
			"--leader-elect=false", "--use-service-account-credentials", "--root-ca-file=" + c.CAPath(),
			"--service-account-private-key-file=" + c.Dir() + "/service-account.key", "--bind-address=127.0.0.1",
			"--flex-volume-plugin-dir=" + dir + "/plugins",
		}},
		{name: "kube-scheduler", user: "system:kube-scheduler", args: []string{"--leader-elect=false", "--bind-address=127.0.0.1"}},
		{name: "kubelet", user: "system:node:node", groups: []string{"system:nodes"}, args: []string{
			"--config=" + dir + "/kubelet.yaml", "--hostname-override=node", "--node-ip=" + nodeIP, "--root-dir=" + dir + "/kubelet",
		}},
		{name: "kube-proxy", user: "system:kube-proxy", configHasKubeconfig: true, args: []string{"--config=" + dir + "/kube-proxy.yaml", "--hostname-override=node"}},
	} {
		cert, key, err := c.IssueCert(p.user, p.groups...)
		if err != nil {
			return err
		}
		config := c.RESTConfig(controlplane.Anonymous)
		config.CertData, config.KeyData = cert, key
		kubeconfig := filepath.Join(dir, p.name+".kubeconfig")
		if err := controlplane.WriteKubeconfig(kubeconfig, config); err != nil {
			return err
		}
		if !p.configHasKubeconfig {
			p.args = append(p.args, "--kubeconfig="+kubeconfig)
		}
		if err := c.run(p.name, p.args...); err != nil {
			return err
		}
	}
	return nil
}

// importImages imports the packed images into containerd.
func (c *Cluster) importImages(ctx context.Context) error {
	ctr := func(args ...string) error {
		args = append([]string{"--address=/run/containerd.sock", "--namespace=k8s.io"}, args...)
		cmd := exec.CommandContext(ctx, filepath.Join(c.bin, "ctr"), args...) // #nosec G204 -- of this package
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("ctr %s: %w: %s", args, err, out)
		}
		return nil
	}
	if err := poll.Try(ctx, patience, time.Second/10, "containerd answers", func() error { return ctr("version") }); err != nil {
		return err
	}
	for _, image := range images {
		if err := ctr("images", "import", filepath.Join(dir, image.program+".tar")); err != nil {
			return err
		}
	}
	released, err := releasedFile("*-image.tar")
	if err != nil {
		return err
	}
	version := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(c.Chart), "listproxy-"), ".tgz")
	return ctr("images", "import", "--index-name="+Image+":"+version, released)
}

// run starts a program. When the program ends, run cancels the cluster.
func (c *Cluster) run(name string, args ...string) error {
	output, err := os.Create(filepath.Join(dir, name+".log"))
	if err != nil {
		return err
	}
	cmd := exec.Command(filepath.Join(c.bin, name), args...) // #nosec G204 -- of this package
	cmd.Env = []string{"PATH=" + c.bin + ":" + os.Getenv("PATH"), "HOME=" + dir}
	cmd.Stdout, cmd.Stderr = output, output
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() {
		err := cmd.Wait()
		text, _ := os.ReadFile(output.Name())
		c.cancel(fmt.Errorf("%s has ended: %w\n%s", name, err, binaries.Tail(text)))
	}()
	return nil
}

// Dialer resolves names with the cluster's DNS.
var Dialer = net.Dialer{Resolver: &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, network, dnsAddress)
}}}

// Forward forwards connections to a Service, as "name.namespace:80", and returns the address at which they arrive. n is the
// index of one of the ports that [Enter] has opened outside and this process has inherited.
func Forward(n int, service string) (string, error) {
	const firstInherited = 3                                                  // file descriptor of exec.Cmd.ExtraFiles[0]
	l, err := net.FileListener(os.NewFile(uintptr(firstInherited+n), "port")) // #nosec G115 -- a small number
	if err != nil {
		return "", err
	}
	go forward(l, service)
	return l.Addr().String(), nil
}

// forward forwards connections of a listener to a Service, as "name.namespace:80".
func forward(l net.Listener, service string) {
	name, port, _ := strings.Cut(service, ":")
	for {
		client, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer func() { _ = client.Close() }()
			server, err := Dialer.Dial("tcp", name+".svc.cluster.local.:"+port)
			if err != nil {
				return
			}
			defer func() { _ = server.Close() }()
			go func() {
				_, _ = io.Copy(server, client)
				if tcp, ok := server.(*net.TCPConn); ok {
					_ = tcp.CloseWrite() // the server may still answer
				}
			}()
			_, _ = io.Copy(client, server)
		}()
	}
}
