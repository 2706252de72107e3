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
	"github.com/listproxy/listproxy/test/harness/poll"
)

const (
	// patience ends a wait for something that must come.
	patience = 5 * time.Minute
	// node is the only node's address. It is the loopback interface's: the cluster has no other.
	node = "192.0.2.1"
	// Image is listproxy's, without its tag, which is the chart's version.
	Image = "ghcr.io/listproxy/listproxy"
)

// files are what programs are configured by; a template for each.
//
//go:embed files
var files embed.FS

// A Cluster runs until this process ends.
type Cluster struct {
	*controlplane.ControlPlane
	// Chart is listproxy's, as a release has it.
	Chart string

	bin string
	log func(string)
	end context.CancelCauseFunc
}

// Start starts the cluster, inside. It ends when the process does. When a program of it ends, so does end.
func Start(ctx context.Context, log func(string), end context.CancelCauseFunc) (c *Cluster, err error) {
	c = &Cluster{log: log, end: end}
	if err := c.isolate(ctx); err != nil {
		return nil, err
	}
	if c.bin, err = bin(); err != nil {
		return nil, err
	}
	charts, err := filepath.Glob(filepath.Join(dir, "dist", "*.tgz"))
	if err != nil || len(charts) != 1 {
		return nil, fmt.Errorf("charts of the release: %q, %w", charts, err)
	}
	c.Chart = charts[0]
	if err := c.configure(); err != nil {
		return nil, err
	}
	c.ControlPlane, err = controlplane.Start(ctx, controlplane.Options{
		ServiceAccounts: true, Log: log,
		APIServerArgs: []string{
			"--bind-address=0.0.0.0", "--advertise-address=" + node, "--endpoint-reconciler-type=lease", "--authorization-mode=Node",
			"--kubelet-preferred-address-types=InternalIP", "--tracing-config-file=" + dir + "/tracing.yaml",
		},
	})
	if err != nil {
		return nil, err
	}
	return c, c.start(ctx)
}

// configure writes what programs read.
func (c *Cluster) configure() error {
	all, err := template.ParseFS(files, "files/*")
	if err != nil {
		return err
	}
	for _, t := range all.Templates() {
		out, err := os.OpenFile(filepath.Join(dir, t.Name()), os.O_CREATE|os.O_WRONLY, 0o600) // #nosec G304 -- of this package
		if err == nil {
			err = errors.Join(t.Execute(out, map[string]string{"Dir": dir, "Bin": c.bin, "Group": group}), out.Close())
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// isolate makes of what the kernel gave to this process a machine with an address and nothing mounted that others see.
func (c *Cluster) isolate(ctx context.Context) error {
	for target, kind := range map[string]string{"/proc": "proc", "/run": "tmpfs", "/var/log": "tmpfs"} {
		if err := syscall.Mount(kind, target, kind, 0, ""); err != nil {
			return fmt.Errorf("mount %s: %w", target, err)
		}
	}
	// What programs write to their usual places in /var/lib is gone with the namespace, but not what is in dir.
	for _, folder := range []string{"/run/keep", "/run/upper", "/run/work"} {
		if err := os.Mkdir(folder, 0o755); err != nil { // #nosec G301 -- as /var/lib is
			return err
		}
	}
	if err := errors.Join(
		syscall.Mount(dir, "/run/keep", "", syscall.MS_BIND, ""),
		syscall.Mount("overlay", "/var/lib", "overlay", 0, "lowerdir=/var/lib,upperdir=/run/upper,workdir=/run/work"),
		syscall.Mount("/run/keep", dir, "", syscall.MS_BIND, ""),
	); err != nil {
		return fmt.Errorf("a copy of /var/lib: %w", err)
	}
	// A kubelet writes to these: to copies.
	for _, setting := range []string{"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops", "kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes"} {
		path, private := "/proc/sys/"+setting, filepath.Join("/run", strings.ReplaceAll(setting, "/", "."))
		value, err := os.ReadFile(path) // #nosec G304 -- of the kernel
		if err == nil {
			err = errors.Join(os.WriteFile(private, value, 0o600), syscall.Mount(private, path, "", syscall.MS_BIND, "")) // #nosec G703 -- as above
		}
		if err != nil {
			return fmt.Errorf("a copy of %s: %w", path, err)
		}
	}
	for _, group := range groups() {
		for _, controller := range []string{"cpuset", "cpu", "memory", "pids", "hugetlb"} { // of version 2, where it is not on already
			_ = os.WriteFile(filepath.Join(filepath.Dir(group), "cgroup.subtree_control"), []byte("+"+controller), 0o600)
		}
		if err := os.Mkdir(group, 0o700); err != nil {
			return err
		}
	}
	for _, args := range []string{"link set lo up", "address add " + node + "/32 dev lo", "route add 10.0.0.0/16 dev lo src " + node} {
		if out, err := exec.CommandContext(ctx, "ip", strings.Fields(args)...).CombinedOutput(); err != nil { // #nosec G204 -- as above
			return fmt.Errorf("ip %s: %w: %s", args, err, out)
		}
	}
	return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o600) // of this network namespace only
}

// start starts all beside the control plane.
func (c *Cluster) start(ctx context.Context) error {
	if err := c.run("containerd", "--config="+dir+"/containerd.toml"); err != nil {
		return err
	}
	if err := c.importImages(ctx); err != nil {
		return err
	}
	for _, p := range []struct {
		name, user string
		groups     []string
		args       []string
	}{
		{"kube-controller-manager", "system:kube-controller-manager", nil, []string{
			"--leader-elect=false", "--use-service-account-credentials", "--root-ca-file=" + c.CAPath(),
			"--service-account-private-key-file=" + c.Dir() + "/service-account.key", "--bind-address=127.0.0.1",
			"--flex-volume-plugin-dir=" + dir + "/plugins",
		}},
		{"kube-scheduler", "system:kube-scheduler", nil, []string{"--leader-elect=false", "--bind-address=127.0.0.1"}},
		{"kubelet", "system:node:node", []string{"system:nodes"}, []string{
			"--config=" + dir + "/kubelet.yaml", "--hostname-override=node", "--node-ip=" + node, "--root-dir=" + dir + "/kubelet",
		}},
		{"kube-proxy", "system:kube-proxy", nil, []string{"--config=" + dir + "/kube-proxy.yaml", "--hostname-override=node"}},
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
		if p.name != "kube-proxy" { // which its configuration tells
			p.args = append(p.args, "--kubeconfig="+kubeconfig)
		}
		if err := c.run(p.name, p.args...); err != nil {
			return err
		}
	}
	for _, args := range []string{
		"apply -f " + dir + "/addons.yaml", "wait --for=create node/node --timeout=5m", "wait --for=condition=Ready node/node --timeout=5m",
		"rollout status deployment/coredns -n kube-system --timeout=5m",
	} {
		if _, err := c.Kubectl(ctx, "", strings.Fields(args)...); err != nil {
			return err
		}
	}
	// A kube-apiserver knows no names of the cluster.
	l, err := net.Listen("tcp", "127.0.0.1:4317")
	if err == nil {
		go forward(l, "jaeger.tracing:4317")
	}
	return err
}

// importImages gives containerd what was packed.
func (c *Cluster) importImages(ctx context.Context) error {
	ctr := func(args ...string) error {
		cmd := exec.CommandContext(ctx, filepath.Join(c.bin, "ctr"), append([]string{"--address=/run/containerd.sock", "--namespace=k8s.io"}, args...)...) // #nosec G204
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
	released, err := filepath.Glob(filepath.Join(dir, "dist", "*-image.tar"))
	if err != nil {
		return err
	}
	version := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(c.Chart), "listproxy-"), ".tgz")
	return ctr("images", "import", "--index-name="+Image+":"+version, released[0])
}

// run starts a program, whose end is that of the cluster.
func (c *Cluster) run(name string, args ...string) error {
	log, err := os.Create(filepath.Join(dir, name+".log"))
	if err != nil {
		return err
	}
	cmd := exec.Command(filepath.Join(c.bin, name), args...) // #nosec G204 -- of this package
	cmd.Env = []string{"PATH=" + c.bin + ":" + os.Getenv("PATH"), "HOME=" + dir}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() {
		err := cmd.Wait()
		said, _ := os.ReadFile(log.Name())
		c.end(fmt.Errorf("%s has ended: %w\n%s", name, err, said[max(0, len(said)-4096):]))
	}()
	return nil
}

// Door leads who knocks at a door, the first is 0, to a port of a Service, as "name.namespace:80", and returns the
// door's address.
func Door(n int, service string) (string, error) {
	l, err := net.FileListener(os.NewFile(uintptr(3+n), "door")) // #nosec G115 -- a small number
	if err != nil {
		return "", err
	}
	go forward(l, service)
	return l.Addr().String(), nil
}

// Dialer knows the names of the cluster's Services, as "name.namespace".
var Dialer = net.Dialer{Resolver: &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, network, "10.0.0.10:53")
}}}

// forward leads connections to a Service.
func forward(l net.Listener, service string) {
	name, port, _ := strings.Cut(service, ":")
	for {
		from, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer func() { _ = from.Close() }()
			to, err := Dialer.Dial("tcp", name+".svc.cluster.local.:"+port)
			if err != nil {
				return
			}
			defer func() { _ = to.Close() }()
			go func() {
				_, _ = io.Copy(to, from)
				if half, ok := to.(*net.TCPConn); ok {
					_ = half.CloseWrite()
				}
			}()
			_, _ = io.Copy(from, to)
		}()
	}
}
