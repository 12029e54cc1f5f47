// Package fleet runs the points of a sweep on any number of processes and machines. A
// submitter holds the results directory, runners compute, and NATS JetStream between
// them hands out work and brings rows back:
//
//	f := &fleet.Submitter{Link: link, Version: v}     // a sweep.Fleet
//	err := fleet.Join(ctx, link, fleet.RunnerOptions{Version: v, Slots: 4, Cache: dir})
//
// The results directory alone decides what is finished. The broker may lose everything
// at any moment: that costs repeated work and never a row. Times are wall times.
// Source: spec scale-out.
package fleet

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/dynosweep/dynosweep/results"
)

// Names of what a sweep uses of the broker.
const (
	workStream = "DSW_WORK"
	rowsStream = "DSW_ROWS"
	sweepsKV   = "DSW_SWEEPS"
	inputStore = "DSW_IN"

	maxJoinFile = 64 << 10
)

// ErrInput is the class of errors that the user mends by another address or file.
var ErrInput = errors.New("fleet")

// Link is how a process reaches the broker. Its JSON form is the join file.
type Link struct {
	Address     string `json:"address"` // nats://host:port or tls://host:port
	Token       string `json:"token"`
	Certificate string `json:"certificate,omitempty"` // PEM, the only one trusted; "": no TLS
}

// ReadLink reads a join file, which nobody but its owner and group may read.
func ReadLink(name string) (*Link, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("%w: cannot read the join file: %w", ErrInput, err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if mode := st.Mode().Perm(); runtime.GOOS != "windows" && mode&^0o640 != 0 {
		return nil, fmt.Errorf("%w: %s has mode %o and holds a secret: chmod 600 it", ErrInput, name, mode)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxJoinFile+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxJoinFile {
		return nil, fmt.Errorf("%w: %s is no join file: it is too long", ErrInput, name)
	}
	l, err := parseLink(text)
	if err != nil {
		return nil, fmt.Errorf("%w: %s is no join file: %w", ErrInput, name, err)
	}
	return l, nil
}

func parseLink(text []byte) (*Link, error) {
	l := new(Link)
	if err := json.Unmarshal(text, l); err != nil {
		return nil, err
	}
	u, err := url.Parse(l.Address)
	if err != nil || u.Host == "" || u.Scheme != "nats" && u.Scheme != "tls" {
		return nil, fmt.Errorf("its address %q is not nats://host:port or tls://host:port", l.Address)
	}
	if l.Token == "" {
		return nil, errors.New("it has no token")
	}
	if l.Certificate != "" && !x509.NewCertPool().AppendCertsFromPEM([]byte(l.Certificate)) {
		return nil, errors.New("its certificate does not read")
	}
	if l.Certificate == "" && !IsLoopback(u.Hostname()) {
		return nil, fmt.Errorf("its address %s is another machine's and it has no certificate: TLS is required", u.Host)
	}
	return l, nil
}

// IsLoopback reports whether a host is this machine alone.
func IsLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// connect opens a connection that mends itself; it comes back at once, connected or not.
// closed is called with the reason if the broker refuses the token for good.
func (l *Link) connect(name string, closed func(error)) (*nats.Conn, error) {
	opts := []nats.Option{nats.Name(name), nats.Token(l.Token), nats.MaxReconnects(-1), nats.RetryOnFailedConnect(true),
		nats.ReconnectWait(250 * time.Millisecond), nats.PingInterval(5 * time.Second), nats.MaxPingsOutstanding(2), nats.Timeout(5 * time.Second),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}), // the loops see their own errors
		nats.ClosedHandler(func(c *nats.Conn) {
			if err := c.LastError(); err != nil && closed != nil {
				closed(err)
			}
		})}
	if l.Certificate != "" {
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM([]byte(l.Certificate))
		opts = append(opts, nats.Secure(&tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS13, ServerName: CertificateName}))
	}
	return nats.Connect(l.Address, opts...)
}

// CertificateName is the name that the certificate of an embedded server bears.
const CertificateName = "dynosweep"

// figures names what decides the figures of a program: runners take only work of their
// own figures (spec scale-out 6). A build whose version does not name its source counts
// by the executable.
func figures(version string) (string, error) {
	h := sha256.New()
	fmt.Fprintf(h, "%s %d %s\n", version, results.SchemaVersion, runtime.GOARCH)
	exe, err := os.Executable()
	if err != nil {
		return "", err
	}
	f, err := os.Open(exe)
	if err != nil {
		return "", err
	}
	defer f.Close()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)[:4]), nil
}

// sweepName is a specification's digest as part of a subject.
func sweepName(digest string) string {
	sum := sha256.Sum256([]byte(strings.ToLower(digest)))
	return hex.EncodeToString(sum[:8])
}
