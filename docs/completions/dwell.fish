# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_dwell_global_optspecs
    string join \n h/help V/version
end

function __fish_dwell_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_dwell_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_dwell_using_subcommand
    set -l cmd (__fish_dwell_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c dwell -n "__fish_dwell_needs_command" -s h -l help -d 'Print help'
complete -c dwell -n "__fish_dwell_needs_command" -s V -l version -d 'Print version'
complete -c dwell -n "__fish_dwell_needs_command" -f -a "ping" -d 'Send probes and measure how long their replies take'
complete -c dwell -n "__fish_dwell_needs_command" -f -a "reflect" -d 'Answer probes'
complete -c dwell -n "__fish_dwell_needs_command" -f -a "relay" -d 'Send on what comes, and say how long it stayed and where'
complete -c dwell -n "__fish_dwell_needs_command" -f -a "pace" -d 'Send pairs or trains of packets on time, and say how punctual they were'
complete -c dwell -n "__fish_dwell_needs_command" -f -a "load" -d 'Put load on this node or on the network'
complete -c dwell -n "__fish_dwell_needs_command" -f -a "trace" -d 'Stamp packets that pass through this node, whoever sends them'
complete -c dwell -n "__fish_dwell_needs_command" -f -a "lab" -d 'Make and remove network namespaces that stand for machines'
complete -c dwell -n "__fish_dwell_needs_command" -f -a "doctor" -d 'Say what this node can measure, and how well'
complete -c dwell -n "__fish_dwell_needs_command" -f -a "serve" -d 'Work for a controller, which speaks on standard input'
complete -c dwell -n "__fish_dwell_needs_command" -f -a "run" -d 'Run a plan: all trials of its matrix, each stored as soon as it ends'
complete -c dwell -n "__fish_dwell_needs_command" -f -a "runs" -d 'List the runs in the data directory'
complete -c dwell -n "__fish_dwell_needs_command" -f -a "show" -d 'Show the results of a run'
complete -c dwell -n "__fish_dwell_needs_command" -f -a "report" -d 'Write a self-contained HTML report of a run'
complete -c dwell -n "__fish_dwell_needs_command" -f -a "compare" -d 'Compare runs: differences of percentiles, with confidence intervals'
complete -c dwell -n "__fish_dwell_needs_command" -f -a "export" -d 'Export the samples of a run'
complete -c dwell -n "__fish_dwell_needs_command" -f -a "import" -d 'Import measurements of dwell or another program'
complete -c dwell -n "__fish_dwell_needs_command" -f -a "note" -d 'Add a note to a run'
complete -c dwell -n "__fish_dwell_needs_command" -f -a "delete" -d 'Delete a run and its samples'
complete -c dwell -n "__fish_dwell_needs_command" -f -a "completions" -d 'Print shell completions to standard output'
complete -c dwell -n "__fish_dwell_needs_command" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c dwell -n "__fish_dwell_using_subcommand ping" -s c -l count -d 'Stop after this many probes' -r
complete -c dwell -n "__fish_dwell_using_subcommand ping" -s i -l interval -d 'Time between probes [default: 1s; text+udp and text+tcp see --pause]' -r
complete -c dwell -n "__fish_dwell_using_subcommand ping" -s s -l size -d 'Bytes of payload [default: 56 for icmp, 64 for udp and tcp, 76 for stamp (164 with a key); the others are fixed]' -r
complete -c dwell -n "__fish_dwell_using_subcommand ping" -s w -l deadline -d 'Send no probe later than this after the first' -r
complete -c dwell -n "__fish_dwell_using_subcommand ping" -s W -l timeout -d 'A reply after this is late' -r
complete -c dwell -n "__fish_dwell_using_subcommand ping" -l pause -d 'In closed loop, wait this long after each reply [default: 0s; text+udp and text+tcp: 1s]' -r
complete -c dwell -n "__fish_dwell_using_subcommand ping" -l warm-up -d 'Probes to send first, not counted; the last three at the pace of those that count [default: 8; text+udp and text+tcp: 1]' -r
complete -c dwell -n "__fish_dwell_using_subcommand ping" -l stamps -d 'Which stamps to use: the program\'s own, or the kernel\'s beside them where delivered' -r -f -a "auto\t'The kernel\'s where it delivers them, else the program\'s'
user\t'The program\'s own clock reads only'
kernel\t'The kernel\'s; exit 4 if it delivers none'"
complete -c dwell -n "__fish_dwell_using_subcommand ping" -l cpu -d 'Run on this CPU' -r
complete -c dwell -n "__fish_dwell_using_subcommand ping" -l scheduling -d 'Scheduling class. auto: real-time (SCHED_FIFO) where allowed, for open-loop pings and sampled traffic that mostly sleep; ordinary for everything else' -r -f -a "auto\t'As suits the work'
other\t'Like every ordinary program'
fifo\t'Before all ordinary programs; exit 4 where not allowed'"
complete -c dwell -n "__fish_dwell_using_subcommand ping" -l icmp-socket -d 'ICMP: which kind of socket' -r -f -a "auto\t'A ping socket where allowed, else a raw one'
ping\t'A ping socket (net.ipv4.ping_group_range)'
raw\t'A raw socket (CAP_NET_RAW)'"
complete -c dwell -n "__fish_dwell_using_subcommand ping" -l key-file -d 'STAMP authenticated mode: file with the key in hexadecimal digits; others must not be able to read it. The environment variable DWELL_KEY does the same' -r -F
complete -c dwell -n "__fish_dwell_using_subcommand ping" -l path -d 'Tell how long each relay on the way kept the probes and their replies: STAMP probes carry this many empty slots, and a relay started with --telemetry fills one each way. Needs no synchronised clocks' -r
complete -c dwell -n "__fish_dwell_using_subcommand ping" -l pattern -d 'What fills the payload' -r -f -a "random\t'One random series, the same in every probe'
zero\t'Zeros'"
complete -c dwell -n "__fish_dwell_using_subcommand ping" -s I -l from -d 'Local address or interface to send from' -r
complete -c dwell -n "__fish_dwell_using_subcommand ping" -s t -l ttl -d 'Time to live, or hop limit. A udp:// reply carries the arriving TTL - 1, so with udp:// this must be at least twice the number of routers + 2' -r
complete -c dwell -n "__fish_dwell_using_subcommand ping" -l dscp -d 'Differentiated services code point, 0 to 63' -r
complete -c dwell -n "__fish_dwell_using_subcommand ping" -l csv -d 'Write a row per probe to this file; `-` is standard output, without the summary' -r -F
complete -c dwell -n "__fish_dwell_using_subcommand ping" -l samples -d 'Write every stamp of every probe to this file, for `dwell import`' -r -F
complete -c dwell -n "__fish_dwell_using_subcommand ping" -l fail-if -d 'Exit with 3 if this holds, with 5 if it cannot be decided, like \'p99 > 10ms\' or \'loss > 1%\'; may be given again' -r
complete -c dwell -n "__fish_dwell_using_subcommand ping" -l closed-loop -d 'Send the next probe after the reply of the last, or its time-out'
complete -c dwell -n "__fish_dwell_using_subcommand ping" -l sched-stamps -d 'Ask for the kernel\'s stamp before the queueing discipline as well (tx_sched)'
complete -c dwell -n "__fish_dwell_using_subcommand ping" -l busy-poll -d 'Poll without sleeping: the smallest delay, and a whole core'
complete -c dwell -n "__fish_dwell_using_subcommand ping" -s 4 -d 'Use IPv4 only'
complete -c dwell -n "__fish_dwell_using_subcommand ping" -s 6 -d 'Use IPv6 only'
complete -c dwell -n "__fish_dwell_using_subcommand ping" -l jsonl -d 'Print a JSON line per reply as it comes'
complete -c dwell -n "__fish_dwell_using_subcommand ping" -l json -d 'Print the summary as one JSON object'
complete -c dwell -n "__fish_dwell_using_subcommand ping" -s q -l quiet -d 'No progress and no line per reply, only the result'
complete -c dwell -n "__fish_dwell_using_subcommand ping" -s v -l verbose -d 'Print every reply, at any rate, and the long table of all metrics'
complete -c dwell -n "__fish_dwell_using_subcommand ping" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dwell -n "__fish_dwell_using_subcommand reflect" -l key-file -d 'STAMP: answer authenticated packets only, with the key in this file (hexadecimal digits; others must not be able to read it). The environment variable DWELL_KEY does the same' -r -F
complete -c dwell -n "__fish_dwell_using_subcommand reflect" -l replay-window -d 'STAMP with a key: answer each request once, and only while it is less than N numbers behind the newest of its session (address and SSID). 1 to 4096; if not given, replays are answered' -r
complete -c dwell -n "__fish_dwell_using_subcommand reflect" -l stamps -d 'Which stamp is T2' -r -f -a "auto\t'The deepest that the socket delivers'
user\t'The program\'s own clock read'"
complete -c dwell -n "__fish_dwell_using_subcommand reflect" -l limit -d 'Replies per second and source address and port, like 1000pps, or off; a TCP connection is slowed down to it [default: off on loopback and in dwell\'s labs, else 100kpps]' -r
complete -c dwell -n "__fish_dwell_using_subcommand reflect" -l cpu -d 'Run on this CPU' -r
complete -c dwell -n "__fish_dwell_using_subcommand reflect" -l scheduling -d 'Scheduling class. auto: real-time (SCHED_FIFO) where allowed, for open-loop pings and sampled traffic that mostly sleep; ordinary for everything else' -r -f -a "auto\t'As suits the work'
other\t'Like every ordinary program'
fifo\t'Before all ordinary programs; exit 4 where not allowed'"
complete -c dwell -n "__fish_dwell_using_subcommand reflect" -l stateless -d 'STAMP: copy the sender\'s sequence number instead of counting per session'
complete -c dwell -n "__fish_dwell_using_subcommand reflect" -l allow-any-port -d 'Answer even source ports 7, 19, 862 and those reflected on here'
complete -c dwell -n "__fish_dwell_using_subcommand reflect" -l busy-poll -d 'Poll without sleeping: the smallest delay, and a whole core'
complete -c dwell -n "__fish_dwell_using_subcommand reflect" -l json -d 'Print the summary as one JSON object at the end'
complete -c dwell -n "__fish_dwell_using_subcommand reflect" -s q -l quiet -d 'Print nothing but errors and the summary'
complete -c dwell -n "__fish_dwell_using_subcommand reflect" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dwell -n "__fish_dwell_using_subcommand relay" -l listen -d 'Where clients send to: udp://ADDRESS:PORT or tcp://ADDRESS:PORT' -r
complete -c dwell -n "__fish_dwell_using_subcommand relay" -l to -d 'Where it goes: the same protocol' -r
complete -c dwell -n "__fish_dwell_using_subcommand relay" -l mode -d 'What happens to payloads. translate: nothing, only addresses and ports change; encrypt: enciphered on the way there, deciphered on the way back; decrypt: its mirror' -r -f -a "translate\t'Nothing'
encrypt\t'Enciphered on the way there'
decrypt\t'Deciphered on the way there'"
complete -c dwell -n "__fish_dwell_using_subcommand relay" -l cipher -d 'How payloads are encrypted. aes-128-ctr: secrecy only, changed and replayed packets pass; aes-128-gcm: such packets are refused' -r -f -a "aes-128-ctr\t'AES-128 in counter mode'
aes-128-gcm\t'AES-128 in Galois/counter mode'"
complete -c dwell -n "__fish_dwell_using_subcommand relay" -l clear -d 'Bytes at the start of every payload that are not enciphered; auto: iperf2\'s header' -r
complete -c dwell -n "__fish_dwell_using_subcommand relay" -l key-file -d 'Key for AES-128: 32 hexadecimal digits in this file, which others must not be able to read. The environment variable DWELL_KEY does the same' -r -F
complete -c dwell -n "__fish_dwell_using_subcommand relay" -l engine -d 'What moves the packets. socket: one receive and one send call for each; batch: many by each call; xdp: in the driver (translate only)' -r -f -a "socket\t'One receive and one send call for each'
batch\t'Many by each call'
xdp\t'In the driver'"
complete -c dwell -n "__fish_dwell_using_subcommand relay" -l stamps -d 'Which stamps to use' -r -f -a "auto\t'The kernel\'s where it delivers them, else the program\'s'
user\t'The program\'s own clock reads only'
kernel\t'The kernel\'s; exit 4 if it delivers none'"
complete -c dwell -n "__fish_dwell_using_subcommand relay" -l id -d 'Where packets carry their id; none: they are numbered as they come' -r -f -a "auto\t'As the first packet of each flow tells'
iperf\t'iperf2\'s header'
iperf-classic\t'The first 12 bytes of iperf2\'s header: what is behind them may be enciphered'
stamp\t'STAMP\'s sequence number'
roundtrip\t'S4\'s round-trip message'
dwell\t'The mark of `dwell load traffic`'
none\t'Nowhere: their order numbers them, which a lost or overtaken packet breaks'"
complete -c dwell -n "__fish_dwell_using_subcommand relay" -l flows -d 'Most clients at a time (512 over TCP); beyond, the one that was idle for longest goes' -r
complete -c dwell -n "__fish_dwell_using_subcommand relay" -l idle -d 'Forget a client that was idle for this long, and close its connection; if not given, 60s (TCP 124min)' -r
complete -c dwell -n "__fish_dwell_using_subcommand relay" -l hold -d 'Hold every packet on purpose, in the program or unread in the socket, like program:200us' -r
complete -c dwell -n "__fish_dwell_using_subcommand relay" -l node-id -d 'This node in telemetry' -r
complete -c dwell -n "__fish_dwell_using_subcommand relay" -l samples -d 'Write every stamp of every packet to this file, as a sample segment' -r -F
complete -c dwell -n "__fish_dwell_using_subcommand relay" -l cpu -d 'Run on this CPU' -r
complete -c dwell -n "__fish_dwell_using_subcommand relay" -l scheduling -d 'Scheduling class. auto: real-time (SCHED_FIFO) where allowed, for open-loop pings and sampled traffic that mostly sleep; ordinary for everything else' -r -f -a "auto\t'As suits the work'
other\t'Like every ordinary program'
fifo\t'Before all ordinary programs; exit 4 where not allowed'"
complete -c dwell -n "__fish_dwell_using_subcommand relay" -l merge -d 'Hand packets of one length to the kernel as one that it cuts as late as it can: more of them a second, and none has kernel stamps (batch; on where --stamps user asks for none)'
complete -c dwell -n "__fish_dwell_using_subcommand relay" -l no-merge -d 'Hand every packet to the kernel as one of its own'
complete -c dwell -n "__fish_dwell_using_subcommand relay" -l telemetry -d 'Fill the empty telemetry slots of STAMP packets that pass'
complete -c dwell -n "__fish_dwell_using_subcommand relay" -l busy-poll -d 'Poll without sleeping: the smallest delay, and a whole core'
complete -c dwell -n "__fish_dwell_using_subcommand relay" -l json -d 'Print the summary as one JSON object at the end'
complete -c dwell -n "__fish_dwell_using_subcommand relay" -s q -l quiet -d 'Print nothing but errors and the summary'
complete -c dwell -n "__fish_dwell_using_subcommand relay" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dwell -n "__fish_dwell_using_subcommand pace; and not __fish_seen_subcommand_from sink help" -l pattern -d 'When packets leave' -r -f -a "pair\t'Two packets back to back, and again'
train\t'Packets at a constant rate'
poisson\t'Packets as by a Poisson process'"
complete -c dwell -n "__fish_dwell_using_subcommand pace; and not __fish_seen_subcommand_from sink help" -l from -d 'Replay the gaps of this file in place of a pattern: one a line, like 12.5us, or nanoseconds' -r -F
complete -c dwell -n "__fish_dwell_using_subcommand pace; and not __fish_seen_subcommand_from sink help" -l size -d 'Size of the IP packet [default: 1500B, or what the way takes in one piece if that is less]' -r
complete -c dwell -n "__fish_dwell_using_subcommand pace; and not __fish_seen_subcommand_from sink help" -l payload-size -d 'Size of the UDP payload instead' -r
complete -c dwell -n "__fish_dwell_using_subcommand pace; and not __fish_seen_subcommand_from sink help" -l frame-size -d 'Size of the Ethernet frame without its check sequence instead' -r
complete -c dwell -n "__fish_dwell_using_subcommand pace; and not __fish_seen_subcommand_from sink help" -l pairs -d 'Pairs to send' -r
complete -c dwell -n "__fish_dwell_using_subcommand pace; and not __fish_seen_subcommand_from sink help" -l gap -d 'From one pair to the next' -r
complete -c dwell -n "__fish_dwell_using_subcommand pace; and not __fish_seen_subcommand_from sink help" -l rate -d 'Rate of a train\'s packets, like 10Mbit/s' -r
complete -c dwell -n "__fish_dwell_using_subcommand pace; and not __fish_seen_subcommand_from sink help" -l count -d 'Packets of a train' -r
complete -c dwell -n "__fish_dwell_using_subcommand pace; and not __fish_seen_subcommand_from sink help" -l repeat -d 'Trains to send' -r
complete -c dwell -n "__fish_dwell_using_subcommand pace; and not __fish_seen_subcommand_from sink help" -l pause -d 'From the last packet of a train to the first of the next, at least: up to as much is added at random [default: 10ms, or a gap if that is longer]' -r
complete -c dwell -n "__fish_dwell_using_subcommand pace; and not __fish_seen_subcommand_from sink help" -l seed -d 'Seed of Poisson gaps' -r
complete -c dwell -n "__fish_dwell_using_subcommand pace; and not __fish_seen_subcommand_from sink help" -l engine -d 'What sends the packets: auto measures all that work here and takes the most punctual' -r
complete -c dwell -n "__fish_dwell_using_subcommand pace; and not __fish_seen_subcommand_from sink help" -l late -d 'A packet that leaves later than this after it was due has missed its deadline [default: a gap]' -r
complete -c dwell -n "__fish_dwell_using_subcommand pace; and not __fish_seen_subcommand_from sink help" -l warm-up -d 'Trains to send first, not counted' -r
complete -c dwell -n "__fish_dwell_using_subcommand pace; and not __fish_seen_subcommand_from sink help" -l stamps -d 'Which stamps to use' -r -f -a "auto\t'The kernel\'s where it delivers them, else the program\'s'
user\t'The program\'s own clock reads only'
kernel\t'The kernel\'s; exit 4 if it delivers none'"
complete -c dwell -n "__fish_dwell_using_subcommand pace; and not __fish_seen_subcommand_from sink help" -l cpu -d 'Run on this CPU' -r
complete -c dwell -n "__fish_dwell_using_subcommand pace; and not __fish_seen_subcommand_from sink help" -l scheduling -d 'Scheduling class. auto: real-time (SCHED_FIFO) where allowed, for open-loop pings and sampled traffic that mostly sleep; ordinary for everything else' -r -f -a "auto\t'As suits the work'
other\t'Like every ordinary program'
fifo\t'Before all ordinary programs; exit 4 where not allowed'"
complete -c dwell -n "__fish_dwell_using_subcommand pace; and not __fish_seen_subcommand_from sink help" -l samples -d 'Write every stamp of every packet to this file, for `dwell import`' -r -F
complete -c dwell -n "__fish_dwell_using_subcommand pace; and not __fish_seen_subcommand_from sink help" -l fail-if -d 'Exit with 3 if this holds, with 5 if it cannot be decided, like \'gap_error.p95 > 50us\'; may be given again' -r
complete -c dwell -n "__fish_dwell_using_subcommand pace; and not __fish_seen_subcommand_from sink help" -l bypass -d 'Go past the queueing discipline, and past a rate limit there: needs --engine packet-ring'
complete -c dwell -n "__fish_dwell_using_subcommand pace; and not __fish_seen_subcommand_from sink help" -l switch-offloads -d 'gso: switch off segmentation offload of the outgoing interface while packets are sent, and on again'
complete -c dwell -n "__fish_dwell_using_subcommand pace; and not __fish_seen_subcommand_from sink help" -l sink -d '`dwell pace sink` listens at the URL: take its stamps where there are none here, and say what was lost'
complete -c dwell -n "__fish_dwell_using_subcommand pace; and not __fish_seen_subcommand_from sink help" -l busy-poll -d 'Poll without sleeping: the smallest delay, and a whole core'
complete -c dwell -n "__fish_dwell_using_subcommand pace; and not __fish_seen_subcommand_from sink help" -s 4 -d 'Use IPv4 only'
complete -c dwell -n "__fish_dwell_using_subcommand pace; and not __fish_seen_subcommand_from sink help" -s 6 -d 'Use IPv6 only'
complete -c dwell -n "__fish_dwell_using_subcommand pace; and not __fish_seen_subcommand_from sink help" -l json -d 'Print the summary as one JSON object'
complete -c dwell -n "__fish_dwell_using_subcommand pace; and not __fish_seen_subcommand_from sink help" -s q -l quiet -d 'No progress, only the result'
complete -c dwell -n "__fish_dwell_using_subcommand pace; and not __fish_seen_subcommand_from sink help" -s v -l verbose -d 'Print the four variability figures j and the comparison of engines as well'
complete -c dwell -n "__fish_dwell_using_subcommand pace; and not __fish_seen_subcommand_from sink help" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dwell -n "__fish_dwell_using_subcommand pace; and not __fish_seen_subcommand_from sink help" -a "sink" -d 'Stamp the packets that arrive, for whoever sends them with --sink'
complete -c dwell -n "__fish_dwell_using_subcommand pace; and not __fish_seen_subcommand_from sink help" -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c dwell -n "__fish_dwell_using_subcommand pace; and __fish_seen_subcommand_from sink" -l cpu -d 'Run on this CPU' -r
complete -c dwell -n "__fish_dwell_using_subcommand pace; and __fish_seen_subcommand_from sink" -l scheduling -d 'Scheduling class. auto: real-time (SCHED_FIFO) where allowed, for open-loop pings and sampled traffic that mostly sleep; ordinary for everything else' -r -f -a "auto\t'As suits the work'
other\t'Like every ordinary program'
fifo\t'Before all ordinary programs; exit 4 where not allowed'"
complete -c dwell -n "__fish_dwell_using_subcommand pace; and __fish_seen_subcommand_from sink" -l busy-poll -d 'Poll without sleeping: the smallest delay, and a whole core'
complete -c dwell -n "__fish_dwell_using_subcommand pace; and __fish_seen_subcommand_from sink" -l json -d 'Print the summary as one JSON object'
complete -c dwell -n "__fish_dwell_using_subcommand pace; and __fish_seen_subcommand_from sink" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dwell -n "__fish_dwell_using_subcommand pace; and __fish_seen_subcommand_from help" -f -a "sink" -d 'Stamp the packets that arrive, for whoever sends them with --sink'
complete -c dwell -n "__fish_dwell_using_subcommand pace; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c dwell -n "__fish_dwell_using_subcommand load; and not __fish_seen_subcommand_from cpu traffic sink help" -s h -l help -d 'Print help'
complete -c dwell -n "__fish_dwell_using_subcommand load; and not __fish_seen_subcommand_from cpu traffic sink help" -f -a "cpu" -d 'Burn CPU time at a level'
complete -c dwell -n "__fish_dwell_using_subcommand load; and not __fish_seen_subcommand_from cpu traffic sink help" -f -a "traffic" -d 'Send UDP traffic at a rate, or fill TCP connections'
complete -c dwell -n "__fish_dwell_using_subcommand load; and not __fish_seen_subcommand_from cpu traffic sink help" -f -a "sink" -d 'Receive and count the traffic'
complete -c dwell -n "__fish_dwell_using_subcommand load; and not __fish_seen_subcommand_from cpu traffic sink help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c dwell -n "__fish_dwell_using_subcommand load; and __fish_seen_subcommand_from cpu" -l level -d 'Share of each CPU to burn, above 0% and up to 100%' -r
complete -c dwell -n "__fish_dwell_using_subcommand load; and __fish_seen_subcommand_from cpu" -l cpu -d 'Burn this CPU; may be given again [default: one burner per CPU]' -r
complete -c dwell -n "__fish_dwell_using_subcommand load; and __fish_seen_subcommand_from cpu" -l duration -d 'Stop after this time [default: until stopped]' -r
complete -c dwell -n "__fish_dwell_using_subcommand load; and __fish_seen_subcommand_from cpu" -l json -d 'Print the summary as one JSON object'
complete -c dwell -n "__fish_dwell_using_subcommand load; and __fish_seen_subcommand_from cpu" -s h -l help -d 'Print help'
complete -c dwell -n "__fish_dwell_using_subcommand load; and __fish_seen_subcommand_from traffic" -l flows -d 'Number of flows, each with a source port of its own' -r
complete -c dwell -n "__fish_dwell_using_subcommand load; and __fish_seen_subcommand_from traffic" -l rate -d 'Rate of all flows together, like 80Mbit/s (counted over IP packets; with tcp:// over payload) or 200pps. Required with udp:// [default with tcp://: as fast as TCP goes]' -r
complete -c dwell -n "__fish_dwell_using_subcommand load; and __fish_seen_subcommand_from traffic" -l distribution -d 'Gaps between packets: constant, poisson or pareto(SHAPE)' -r
complete -c dwell -n "__fish_dwell_using_subcommand load; and __fish_seen_subcommand_from traffic" -l size -d 'Size of the UDP payload [default: 1400B], or of each write with tcp:// [default: 128KiB, or 10 ms of the rate]' -r
complete -c dwell -n "__fish_dwell_using_subcommand load; and __fish_seen_subcommand_from traffic" -l seed -d 'Seed of the gaps and of the payload' -r
complete -c dwell -n "__fish_dwell_using_subcommand load; and __fish_seen_subcommand_from traffic" -l header -d 'What the payload begins with' -r -f -a "dwell\t'dwell\'s own mark: flow and sequence number'
iperf\t'iperf2\'s, so that `iperf -s -u -e` counts the flow and reports it; the last packet of a flow is its end, which is repeated until the server has answered'"
complete -c dwell -n "__fish_dwell_using_subcommand load; and __fish_seen_subcommand_from traffic" -l duration -d 'Stop after this time [default: until stopped]' -r
complete -c dwell -n "__fish_dwell_using_subcommand load; and __fish_seen_subcommand_from traffic" -l count -d 'Stop after this many packets; with tcp:// after this many writes' -r
complete -c dwell -n "__fish_dwell_using_subcommand load; and __fish_seen_subcommand_from traffic" -l bytes -d 'Stop after this many bytes of payload, like 100MB' -r
complete -c dwell -n "__fish_dwell_using_subcommand load; and __fish_seen_subcommand_from traffic" -l stamps -d 'Which stamps to use for --samples: the program\'s own, or the kernel\'s beside them where delivered' -r -f -a "auto\t'The kernel\'s where it delivers them, else the program\'s'
user\t'The program\'s own clock reads only'
kernel\t'The kernel\'s; exit 4 if it delivers none'"
complete -c dwell -n "__fish_dwell_using_subcommand load; and __fish_seen_subcommand_from traffic" -l cpu -d 'Run on this CPU' -r
complete -c dwell -n "__fish_dwell_using_subcommand load; and __fish_seen_subcommand_from traffic" -l scheduling -d 'Scheduling class. auto: real-time (SCHED_FIFO) where allowed, for open-loop pings and sampled traffic that mostly sleep; ordinary for everything else' -r -f -a "auto\t'As suits the work'
other\t'Like every ordinary program'
fifo\t'Before all ordinary programs; exit 4 where not allowed'"
complete -c dwell -n "__fish_dwell_using_subcommand load; and __fish_seen_subcommand_from traffic" -l samples -d 'Write every stamp of every packet to this file' -r -F
complete -c dwell -n "__fish_dwell_using_subcommand load; and __fish_seen_subcommand_from traffic" -l busy-poll -d 'Poll without sleeping: the smallest delay, and a whole core'
complete -c dwell -n "__fish_dwell_using_subcommand load; and __fish_seen_subcommand_from traffic" -s 4 -d 'Use IPv4 only'
complete -c dwell -n "__fish_dwell_using_subcommand load; and __fish_seen_subcommand_from traffic" -s 6 -d 'Use IPv6 only'
complete -c dwell -n "__fish_dwell_using_subcommand load; and __fish_seen_subcommand_from traffic" -l json -d 'Print the summary as one JSON object'
complete -c dwell -n "__fish_dwell_using_subcommand load; and __fish_seen_subcommand_from traffic" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dwell -n "__fish_dwell_using_subcommand load; and __fish_seen_subcommand_from sink" -l duration -d 'Stop after this time [default: until stopped]' -r
complete -c dwell -n "__fish_dwell_using_subcommand load; and __fish_seen_subcommand_from sink" -l clock-error -d 'The clocks of all senders differ from this one\'s by at most this (0s: they are one, as in a lab): tell how long packets of iperf\'s header were on the way. Senders on this machine\'s own loopback need no such promise' -r
complete -c dwell -n "__fish_dwell_using_subcommand load; and __fish_seen_subcommand_from sink" -l stamps -d 'Which stamps to use: the program\'s own, or the kernel\'s beside them where delivered' -r -f -a "auto\t'The kernel\'s where it delivers them, else the program\'s'
user\t'The program\'s own clock reads only'
kernel\t'The kernel\'s; exit 4 if it delivers none'"
complete -c dwell -n "__fish_dwell_using_subcommand load; and __fish_seen_subcommand_from sink" -l cpu -d 'Run on this CPU' -r
complete -c dwell -n "__fish_dwell_using_subcommand load; and __fish_seen_subcommand_from sink" -l scheduling -d 'Scheduling class. auto: real-time (SCHED_FIFO) where allowed, for open-loop pings and sampled traffic that mostly sleep; ordinary for everything else' -r -f -a "auto\t'As suits the work'
other\t'Like every ordinary program'
fifo\t'Before all ordinary programs; exit 4 where not allowed'"
complete -c dwell -n "__fish_dwell_using_subcommand load; and __fish_seen_subcommand_from sink" -l samples -d 'Write every stamp of every packet to this file' -r -F
complete -c dwell -n "__fish_dwell_using_subcommand load; and __fish_seen_subcommand_from sink" -l busy-poll -d 'Poll without sleeping: the smallest delay, and a whole core'
complete -c dwell -n "__fish_dwell_using_subcommand load; and __fish_seen_subcommand_from sink" -l json -d 'Print the summary as one JSON object'
complete -c dwell -n "__fish_dwell_using_subcommand load; and __fish_seen_subcommand_from sink" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dwell -n "__fish_dwell_using_subcommand load; and __fish_seen_subcommand_from help" -f -a "cpu" -d 'Burn CPU time at a level'
complete -c dwell -n "__fish_dwell_using_subcommand load; and __fish_seen_subcommand_from help" -f -a "traffic" -d 'Send UDP traffic at a rate, or fill TCP connections'
complete -c dwell -n "__fish_dwell_using_subcommand load; and __fish_seen_subcommand_from help" -f -a "sink" -d 'Receive and count the traffic'
complete -c dwell -n "__fish_dwell_using_subcommand load; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c dwell -n "__fish_dwell_using_subcommand trace" -l flow -d 'Which packets: udp, tcp or icmp, then \'host ADDRESS\', \'port NUMBER\' or both, of either side' -r
complete -c dwell -n "__fish_dwell_using_subcommand trace" -l id -d 'Where packets of UDP carry their id; TCP and ICMP have theirs' -r -f -a "auto\t'As the first packet of each flow tells'
iperf\t'iperf2\'s header'
iperf-classic\t'The first 12 bytes of iperf2\'s header: what is behind them may be enciphered'
stamp\t'STAMP\'s sequence number'
roundtrip\t'S4\'s round-trip message'
dwell\t'The mark of `dwell load traffic`'
none\t'Nowhere: their order numbers them, which a lost or overtaken packet breaks'"
complete -c dwell -n "__fish_dwell_using_subcommand trace" -l hooks -d 'Where to stamp [default: everywhere]' -r -f -a "netfilter\t'pre_routing and post_routing'
tcx\t'rx_tcx and tx_tcx'
xdp\t'rx_driver'"
complete -c dwell -n "__fish_dwell_using_subcommand trace" -l interface -d 'Interface for tcx and xdp; may be given again [default: all but loopback]' -r
complete -c dwell -n "__fish_dwell_using_subcommand trace" -l duration -d 'Stop after this time [default: until stopped]' -r
complete -c dwell -n "__fish_dwell_using_subcommand trace" -l samples -d 'Write every stamp of every packet to this file' -r -F
complete -c dwell -n "__fish_dwell_using_subcommand trace" -l json -d 'Print the summary as one JSON object'
complete -c dwell -n "__fish_dwell_using_subcommand trace" -s q -l quiet -d 'No live table, only the result'
complete -c dwell -n "__fish_dwell_using_subcommand trace" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dwell -n "__fish_dwell_using_subcommand lab; and not __fish_seen_subcommand_from up exec list routes down help" -s h -l help -d 'Print help'
complete -c dwell -n "__fish_dwell_using_subcommand lab; and not __fish_seen_subcommand_from up exec list routes down help" -f -a "up" -d 'Make a lab: nodes, links, addresses and routes'
complete -c dwell -n "__fish_dwell_using_subcommand lab; and not __fish_seen_subcommand_from up exec list routes down help" -f -a "exec" -d 'Run a command in a node, in place of this one'
complete -c dwell -n "__fish_dwell_using_subcommand lab; and not __fish_seen_subcommand_from up exec list routes down help" -f -a "list" -d 'Say which labs there are'
complete -c dwell -n "__fish_dwell_using_subcommand lab; and not __fish_seen_subcommand_from up exec list routes down help" -f -a "routes" -d 'Say how every node reaches every other now, and who put the routes there'
complete -c dwell -n "__fish_dwell_using_subcommand lab; and not __fish_seen_subcommand_from up exec list routes down help" -f -a "down" -d 'End what runs in a lab and remove all of it'
complete -c dwell -n "__fish_dwell_using_subcommand lab; and not __fish_seen_subcommand_from up exec list routes down help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c dwell -n "__fish_dwell_using_subcommand lab; and __fish_seen_subcommand_from up" -l name -d 'Name of the lab: letters, digits and hyphens [default: a short random one]' -r
complete -c dwell -n "__fish_dwell_using_subcommand lab; and __fish_seen_subcommand_from up" -l rate -d 'Rate of every link, such as 10Mbit/s' -r
complete -c dwell -n "__fish_dwell_using_subcommand lab; and __fish_seen_subcommand_from up" -l delay -d 'Delay of every link, one way, such as 5ms' -r
complete -c dwell -n "__fish_dwell_using_subcommand lab; and __fish_seen_subcommand_from up" -l jitter -d 'Variation of the delay, either way, such as 1ms' -r
complete -c dwell -n "__fish_dwell_using_subcommand lab; and __fish_seen_subcommand_from up" -l loss -d 'Share of packets lost, such as 1%' -r
complete -c dwell -n "__fish_dwell_using_subcommand lab; and __fish_seen_subcommand_from up" -l duplicate -d 'Share of packets doubled, such as 1%' -r
complete -c dwell -n "__fish_dwell_using_subcommand lab; and __fish_seen_subcommand_from up" -l reorder -d 'Share of packets that skip the delay, such as 1%' -r
complete -c dwell -n "__fish_dwell_using_subcommand lab; and __fish_seen_subcommand_from up" -l seed -d 'Seed of what chance decides; the same seed, the same luck [default: random]' -r
complete -c dwell -n "__fish_dwell_using_subcommand lab; and __fish_seen_subcommand_from up" -l mechanism -d 'How links are emulated: netem, tbf or tap [default: the first of these that can do it]' -r
complete -c dwell -n "__fish_dwell_using_subcommand lab; and __fish_seen_subcommand_from up" -l routing -d 'Where routes come from: static (from dwell, once) or babel (from babeld, in every node)' -r
complete -c dwell -n "__fish_dwell_using_subcommand lab; and __fish_seen_subcommand_from up" -l quota -d 'Share of one processor for all that runs in a node, such as n2=20%; may be given again' -r
complete -c dwell -n "__fish_dwell_using_subcommand lab; and __fish_seen_subcommand_from up" -l replace -d 'Take down a lab of the same name first, and end what runs in it'
complete -c dwell -n "__fish_dwell_using_subcommand lab; and __fish_seen_subcommand_from up" -l json -d 'Print the lab as one JSON object'
complete -c dwell -n "__fish_dwell_using_subcommand lab; and __fish_seen_subcommand_from up" -s h -l help -d 'Print help'
complete -c dwell -n "__fish_dwell_using_subcommand lab; and __fish_seen_subcommand_from exec" -l lab -d 'The lab [default: the only one there is]' -r
complete -c dwell -n "__fish_dwell_using_subcommand lab; and __fish_seen_subcommand_from exec" -s h -l help -d 'Print help'
complete -c dwell -n "__fish_dwell_using_subcommand lab; and __fish_seen_subcommand_from list" -l json -d 'Print all of every lab as one JSON object, counters included'
complete -c dwell -n "__fish_dwell_using_subcommand lab; and __fish_seen_subcommand_from list" -s h -l help -d 'Print help'
complete -c dwell -n "__fish_dwell_using_subcommand lab; and __fish_seen_subcommand_from routes" -l json -d 'Print them as one JSON object'
complete -c dwell -n "__fish_dwell_using_subcommand lab; and __fish_seen_subcommand_from routes" -s h -l help -d 'Print help'
complete -c dwell -n "__fish_dwell_using_subcommand lab; and __fish_seen_subcommand_from down" -l all -d 'Every lab there is'
complete -c dwell -n "__fish_dwell_using_subcommand lab; and __fish_seen_subcommand_from down" -s h -l help -d 'Print help'
complete -c dwell -n "__fish_dwell_using_subcommand lab; and __fish_seen_subcommand_from help" -f -a "up" -d 'Make a lab: nodes, links, addresses and routes'
complete -c dwell -n "__fish_dwell_using_subcommand lab; and __fish_seen_subcommand_from help" -f -a "exec" -d 'Run a command in a node, in place of this one'
complete -c dwell -n "__fish_dwell_using_subcommand lab; and __fish_seen_subcommand_from help" -f -a "list" -d 'Say which labs there are'
complete -c dwell -n "__fish_dwell_using_subcommand lab; and __fish_seen_subcommand_from help" -f -a "routes" -d 'Say how every node reaches every other now, and who put the routes there'
complete -c dwell -n "__fish_dwell_using_subcommand lab; and __fish_seen_subcommand_from help" -f -a "down" -d 'End what runs in a lab and remove all of it'
complete -c dwell -n "__fish_dwell_using_subcommand lab; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c dwell -n "__fish_dwell_using_subcommand doctor" -l json -d 'Print the findings as one JSON object'
complete -c dwell -n "__fish_dwell_using_subcommand doctor" -s h -l help -d 'Print help'
complete -c dwell -n "__fish_dwell_using_subcommand serve" -l stdio -d 'Speak the node protocol on standard input and output'
complete -c dwell -n "__fish_dwell_using_subcommand serve" -s h -l help -d 'Print help'
complete -c dwell -n "__fish_dwell_using_subcommand run" -l set -d 'Set a field of the plan, such as topology.link.rate=10Mbit/s; may be repeated' -r
complete -c dwell -n "__fish_dwell_using_subcommand run" -l resume -d 'Resume a run of this plan: its name, or last for the newest unfinished one' -r
complete -c dwell -n "__fish_dwell_using_subcommand run" -l seed -d 'Seed for the order of trials, unless the plan has one [default: random, printed]' -r
complete -c dwell -n "__fish_dwell_using_subcommand run" -l data -d 'Directory of runs and samples' -r -F
complete -c dwell -n "__fish_dwell_using_subcommand run" -l dry-run -d 'Print the trials and the expected time, packets and bytes without running anything'
complete -c dwell -n "__fish_dwell_using_subcommand run" -l yes -d 'Do not ask for confirmation of a very large plan'
complete -c dwell -n "__fish_dwell_using_subcommand run" -l json -d 'Print the result as one JSON object'
complete -c dwell -n "__fish_dwell_using_subcommand run" -s q -l quiet -d 'Print no progress, only the result'
complete -c dwell -n "__fish_dwell_using_subcommand run" -s h -l help -d 'Print help'
complete -c dwell -n "__fish_dwell_using_subcommand runs" -l data -d 'Directory of runs and samples' -r -F
complete -c dwell -n "__fish_dwell_using_subcommand runs" -l json -d 'Print the list as one JSON object'
complete -c dwell -n "__fish_dwell_using_subcommand runs" -s h -l help -d 'Print help'
complete -c dwell -n "__fish_dwell_using_subcommand show" -l accurate -d 'Tolerances for paced packets instead of those in the plan, such as \'rate 5%, gap 10%\' or \'trains 20, confidence 95%\'' -r
complete -c dwell -n "__fish_dwell_using_subcommand show" -l data -d 'Directory of runs and samples' -r -F
complete -c dwell -n "__fish_dwell_using_subcommand show" -l json -d 'Print everything as one JSON object (dwell.run/1)'
complete -c dwell -n "__fish_dwell_using_subcommand show" -l recompute -d 'Recompute the figures from the samples, on all cores, instead of printing the stored ones'
complete -c dwell -n "__fish_dwell_using_subcommand show" -s h -l help -d 'Print help'
complete -c dwell -n "__fish_dwell_using_subcommand report" -s o -l output -d 'Output file [default: RUN.html in the data directory]' -r -F
complete -c dwell -n "__fish_dwell_using_subcommand report" -l accurate -d 'Tolerances for paced packets instead of those in the plan, such as \'rate 5%, gap 10%\' or \'trains 20, confidence 95%\'' -r
complete -c dwell -n "__fish_dwell_using_subcommand report" -l data -d 'Directory of runs and samples' -r -F
complete -c dwell -n "__fish_dwell_using_subcommand report" -s h -l help -d 'Print help'
complete -c dwell -n "__fish_dwell_using_subcommand compare" -l metric -d 'Delay to compare, named like a sample column [default: the main delay of the first run, such as rtt_ns or node_delay_ns]' -r
complete -c dwell -n "__fish_dwell_using_subcommand compare" -l fail-if -d 'Exit with code 3 if this condition holds in any cell, or 5 if that cannot be decided; may be repeated' -r
complete -c dwell -n "__fish_dwell_using_subcommand compare" -s o -l output -d 'Write an HTML page with figures on shared axes' -r -F
complete -c dwell -n "__fish_dwell_using_subcommand compare" -l seed -d 'Seed for resampling' -r
complete -c dwell -n "__fish_dwell_using_subcommand compare" -l data -d 'Directory of runs and samples' -r -F
complete -c dwell -n "__fish_dwell_using_subcommand compare" -l json -d 'Print the results as one JSON object'
complete -c dwell -n "__fish_dwell_using_subcommand compare" -s h -l help -d 'Print help'
complete -c dwell -n "__fish_dwell_using_subcommand export" -l format -d 'Output format' -r -f -a "csv\t'One row per sample, with its trial and axis values'
jsonl\t'One JSON object per sample, one per line'
parquet\t'The stored files, one per trial, and a table of trials'
hdr\t'HdrHistogram log with one histogram per trial of the run\'s main delay: the round trip, or the node delay of a flow'"
complete -c dwell -n "__fish_dwell_using_subcommand export" -l what -d 'Data to export' -r -f -a "samples\t'Samples'
host\t'Host activity during the trials, one row per value'"
complete -c dwell -n "__fish_dwell_using_subcommand export" -s o -l output -d 'Output file, `-` for standard output; for parquet, a directory [default: standard output; for parquet, RUN-samples or RUN-host]' -r -F
complete -c dwell -n "__fish_dwell_using_subcommand export" -l data -d 'Directory of runs and samples' -r -F
complete -c dwell -n "__fish_dwell_using_subcommand export" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dwell -n "__fish_dwell_using_subcommand import" -l witness -d 'Compare a capture with this run (or last): match packets to probes by id, and show how far timestamps and gaps agree' -r
complete -c dwell -n "__fish_dwell_using_subcommand import" -l data -d 'Directory of runs and samples' -r -F
complete -c dwell -n "__fish_dwell_using_subcommand import" -l json -d 'Print a summary as one JSON object'
complete -c dwell -n "__fish_dwell_using_subcommand import" -s h -l help -d 'Print help'
complete -c dwell -n "__fish_dwell_using_subcommand note" -l data -d 'Directory of runs and samples' -r -F
complete -c dwell -n "__fish_dwell_using_subcommand note" -s h -l help -d 'Print help'
complete -c dwell -n "__fish_dwell_using_subcommand delete" -l data -d 'Directory of runs and samples' -r -F
complete -c dwell -n "__fish_dwell_using_subcommand delete" -l yes -d 'Do not ask for confirmation'
complete -c dwell -n "__fish_dwell_using_subcommand delete" -l json -d 'Print the result as one JSON object'
complete -c dwell -n "__fish_dwell_using_subcommand delete" -s h -l help -d 'Print help'
complete -c dwell -n "__fish_dwell_using_subcommand completions" -s h -l help -d 'Print help'
complete -c dwell -n "__fish_dwell_using_subcommand help; and not __fish_seen_subcommand_from ping reflect relay pace load trace lab doctor serve run runs show report compare export import note delete completions help" -f -a "ping" -d 'Send probes and measure how long their replies take'
complete -c dwell -n "__fish_dwell_using_subcommand help; and not __fish_seen_subcommand_from ping reflect relay pace load trace lab doctor serve run runs show report compare export import note delete completions help" -f -a "reflect" -d 'Answer probes'
complete -c dwell -n "__fish_dwell_using_subcommand help; and not __fish_seen_subcommand_from ping reflect relay pace load trace lab doctor serve run runs show report compare export import note delete completions help" -f -a "relay" -d 'Send on what comes, and say how long it stayed and where'
complete -c dwell -n "__fish_dwell_using_subcommand help; and not __fish_seen_subcommand_from ping reflect relay pace load trace lab doctor serve run runs show report compare export import note delete completions help" -f -a "pace" -d 'Send pairs or trains of packets on time, and say how punctual they were'
complete -c dwell -n "__fish_dwell_using_subcommand help; and not __fish_seen_subcommand_from ping reflect relay pace load trace lab doctor serve run runs show report compare export import note delete completions help" -f -a "load" -d 'Put load on this node or on the network'
complete -c dwell -n "__fish_dwell_using_subcommand help; and not __fish_seen_subcommand_from ping reflect relay pace load trace lab doctor serve run runs show report compare export import note delete completions help" -f -a "trace" -d 'Stamp packets that pass through this node, whoever sends them'
complete -c dwell -n "__fish_dwell_using_subcommand help; and not __fish_seen_subcommand_from ping reflect relay pace load trace lab doctor serve run runs show report compare export import note delete completions help" -f -a "lab" -d 'Make and remove network namespaces that stand for machines'
complete -c dwell -n "__fish_dwell_using_subcommand help; and not __fish_seen_subcommand_from ping reflect relay pace load trace lab doctor serve run runs show report compare export import note delete completions help" -f -a "doctor" -d 'Say what this node can measure, and how well'
complete -c dwell -n "__fish_dwell_using_subcommand help; and not __fish_seen_subcommand_from ping reflect relay pace load trace lab doctor serve run runs show report compare export import note delete completions help" -f -a "serve" -d 'Work for a controller, which speaks on standard input'
complete -c dwell -n "__fish_dwell_using_subcommand help; and not __fish_seen_subcommand_from ping reflect relay pace load trace lab doctor serve run runs show report compare export import note delete completions help" -f -a "run" -d 'Run a plan: all trials of its matrix, each stored as soon as it ends'
complete -c dwell -n "__fish_dwell_using_subcommand help; and not __fish_seen_subcommand_from ping reflect relay pace load trace lab doctor serve run runs show report compare export import note delete completions help" -f -a "runs" -d 'List the runs in the data directory'
complete -c dwell -n "__fish_dwell_using_subcommand help; and not __fish_seen_subcommand_from ping reflect relay pace load trace lab doctor serve run runs show report compare export import note delete completions help" -f -a "show" -d 'Show the results of a run'
complete -c dwell -n "__fish_dwell_using_subcommand help; and not __fish_seen_subcommand_from ping reflect relay pace load trace lab doctor serve run runs show report compare export import note delete completions help" -f -a "report" -d 'Write a self-contained HTML report of a run'
complete -c dwell -n "__fish_dwell_using_subcommand help; and not __fish_seen_subcommand_from ping reflect relay pace load trace lab doctor serve run runs show report compare export import note delete completions help" -f -a "compare" -d 'Compare runs: differences of percentiles, with confidence intervals'
complete -c dwell -n "__fish_dwell_using_subcommand help; and not __fish_seen_subcommand_from ping reflect relay pace load trace lab doctor serve run runs show report compare export import note delete completions help" -f -a "export" -d 'Export the samples of a run'
complete -c dwell -n "__fish_dwell_using_subcommand help; and not __fish_seen_subcommand_from ping reflect relay pace load trace lab doctor serve run runs show report compare export import note delete completions help" -f -a "import" -d 'Import measurements of dwell or another program'
complete -c dwell -n "__fish_dwell_using_subcommand help; and not __fish_seen_subcommand_from ping reflect relay pace load trace lab doctor serve run runs show report compare export import note delete completions help" -f -a "note" -d 'Add a note to a run'
complete -c dwell -n "__fish_dwell_using_subcommand help; and not __fish_seen_subcommand_from ping reflect relay pace load trace lab doctor serve run runs show report compare export import note delete completions help" -f -a "delete" -d 'Delete a run and its samples'
complete -c dwell -n "__fish_dwell_using_subcommand help; and not __fish_seen_subcommand_from ping reflect relay pace load trace lab doctor serve run runs show report compare export import note delete completions help" -f -a "completions" -d 'Print shell completions to standard output'
complete -c dwell -n "__fish_dwell_using_subcommand help; and not __fish_seen_subcommand_from ping reflect relay pace load trace lab doctor serve run runs show report compare export import note delete completions help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c dwell -n "__fish_dwell_using_subcommand help; and __fish_seen_subcommand_from pace" -f -a "sink" -d 'Stamp the packets that arrive, for whoever sends them with --sink'
complete -c dwell -n "__fish_dwell_using_subcommand help; and __fish_seen_subcommand_from load" -f -a "cpu" -d 'Burn CPU time at a level'
complete -c dwell -n "__fish_dwell_using_subcommand help; and __fish_seen_subcommand_from load" -f -a "traffic" -d 'Send UDP traffic at a rate, or fill TCP connections'
complete -c dwell -n "__fish_dwell_using_subcommand help; and __fish_seen_subcommand_from load" -f -a "sink" -d 'Receive and count the traffic'
complete -c dwell -n "__fish_dwell_using_subcommand help; and __fish_seen_subcommand_from lab" -f -a "up" -d 'Make a lab: nodes, links, addresses and routes'
complete -c dwell -n "__fish_dwell_using_subcommand help; and __fish_seen_subcommand_from lab" -f -a "exec" -d 'Run a command in a node, in place of this one'
complete -c dwell -n "__fish_dwell_using_subcommand help; and __fish_seen_subcommand_from lab" -f -a "list" -d 'Say which labs there are'
complete -c dwell -n "__fish_dwell_using_subcommand help; and __fish_seen_subcommand_from lab" -f -a "routes" -d 'Say how every node reaches every other now, and who put the routes there'
complete -c dwell -n "__fish_dwell_using_subcommand help; and __fish_seen_subcommand_from lab" -f -a "down" -d 'End what runs in a lab and remove all of it'
